package domains

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/caddyserver/certmagic"
	"google.golang.org/protobuf/proto"

	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// cleanUpTimeout limits a clean-up, with the wait for a request for a certificate that has been canceled.
const cleanUpTimeout = time.Minute

// CleanUp runs the task binding.CleanUpTask: it removes the certificates, keys and challenges of a name at all authorities that the
// server has used.
func (d *Domains) CleanUp(ctx context.Context, c *bindingv1.CleanUp) (proto.Message, error) {
	limited, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	err := d.cleanUp(limited, c.GetHostname())
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		d.metrics.cleanedUp("failed")
		d.o.Log.Warn("the certificates of a released domain were not removed", slog.String("host", c.GetHostname()), slog.Any("error", err))
		return &bindingv1.ReportCleanUpFailed{Number: c.GetNumber(), Reason: "The certificates of the name could not be removed."}, nil
	}
	d.metrics.cleanedUp("done")
	return &bindingv1.ReportCleanedUp{Number: c.GetNumber()}, nil
}

func (d *Domains) cleanUp(ctx context.Context, host string) error {
	session := d.files.begin()
	defer session.end(ctx)
	if err := session.Lock(ctx, "issue_cert_"+host); err != nil { // the lock of certmagic
		return err
	}
	authorities, err := session.names(ctx, certificateFolder[:len(certificateFolder)-1], false)
	if err != nil {
		return err
	}
	var errs []error
	for _, folder := range authorities {
		errs = append(errs, session.Delete(ctx, folder+"/"+certmagic.StorageKeys.Safe(host)))
	}
	for _, method := range []string{methodHTTP, methodTLS} {
		errs = append(errs, session.Delete(ctx, challengeFile(method, host)))
	}
	return errors.Join(errs...)
}
