package oneline

import "fmt"

// Many is how many of a thing there are, in words: "1 guest", "2 guests".
func Many(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
