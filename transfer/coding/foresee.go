package coding

import "time"

// Foresee is to which share a stream of such parts would be packed over a link of so many bytes per second; 0: not known.
func Foresee(parts [][]byte, link float64) float64 {
	w := NewWriter(nil)
	plain, packed := 0, 0
	begun := time.Now()
	for _, part := range parts {
		w.frame = w.append(w.frame[:0], part)
		plain, packed = plain+len(part), packed+len(w.frame)
	}
	if took := time.Since(begun).Seconds(); plain == 0 || link > 0 && float64(plain)/took < link {
		return 1 // it would go as it is
	}
	return float64(packed) / float64(plain)
}
