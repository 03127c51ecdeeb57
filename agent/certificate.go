package agent

import (
	"context"
	"time"

	"godwit/agent/peer"
	"godwit/internal/clock"
)

// watchCertificate says at once, and then each day until ctx ends, that other hosts do not believe this one's certificate,
// or will not soon: those of a fleet end all at the same time.
func (a *Agent) watchCertificate(ctx context.Context) {
	for again := true; again; again = sleep(ctx, 24*time.Hour) {
		now, until := clock.Now(), a.id.Expires()
		if err := a.id.Check(now); err != nil {
			a.log.Warn("other hosts do not believe this one's certificate", "certificate", a.config.TLS.Cert, "error", err, "cure", peer.CureOf(err))
		} else if until.Sub(now) < peer.RenewBefore {
			a.log.Warn("the host's certificate ends soon", "certificate", a.config.TLS.Cert, "until", until.UTC().Format(time.DateTime)+" UTC", "cure", peer.Cure)
		}
	}
}

// renewed tells what came of a certificate that somebody replaced.
func (a *Agent) renewed(err error) {
	if err != nil {
		a.log.Warn("other certificate files are there and do not count yet; those of before still do", "certificate", a.config.TLS.Cert, "error", err)
		return
	}
	a.log.Info("the host's certificate was renewed", "certificate", a.config.TLS.Cert)
}
