package qemu

import (
	"context"
	"errors"

	"godwit/vm/qemu/qmp"
)

// zerosByOne is the setting by which one thread tells of pages of zeros, and not each of several channels, as these do
// from QEMU 9.0 on: who is told by them of a page for the first time takes it to be zeros already
// (multifd_recv_zero_page_process). Memory in a file is what that held before, such as at the guest's last visit. It is
// not put back: of such a guest no other is right.
const zerosByOne = "legacy"

// inFile says whether some of the guest's memory is in a file.
func (p *Process) inFile(ctx context.Context) (bool, error) {
	var backends []struct {
		ID string `json:"id"`
	}
	if err := p.qmp.Do(ctx, "query-memdev", nil, &backends); err != nil {
		return false, err
	}
	for _, b := range backends {
		kind, err := p.typeOf(ctx, "/objects/"+b.ID)
		var unknown *qmp.Error
		if err != nil && !errors.As(err, &unknown) {
			return false, err
		}
		if kind == "memory-backend-file" {
			return true, nil
		}
	}
	return false, nil
}
