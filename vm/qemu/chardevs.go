package qemu

import "context"

// Chardevs are QEMU's character devices by id, each with what it is connected to in QEMU's words, such as
// `disconnected:unix:/run/web.sock,server=on` (query-chardev).
func (p *Process) Chardevs(ctx context.Context) (map[string]string, error) {
	var devices []struct {
		Label    string `json:"label"`
		Filename string `json:"filename"`
	}
	if err := p.qmp.Do(ctx, "query-chardev", nil, &devices); err != nil {
		return nil, err
	}
	by := map[string]string{}
	for _, d := range devices {
		by[d.Label] = d.Filename
	}
	return by, nil
}
