package slug

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// Limits of a slug, in characters (decisions, section 3).
const (
	MinLength = 3
	MaxLength = 30
)

var (
	errLength   = entity.Errorf(entity.InvalidRequest, "slug must have %d to %d characters", MinLength, MaxLength)
	errAlphabet = entity.Errorf(entity.InvalidRequest, "slug may only have the characters a-z, 0-9 and -")
	errEnds     = entity.Errorf(entity.InvalidRequest, "slug must start with a letter and end with a letter or digit")
	errHyphens  = entity.Errorf(entity.InvalidRequest, "slug must not have two hyphens in a row")
	errReserved = entity.Errorf(entity.InvalidRequest, "slug is reserved")
)

// Check tells why a slug can be no workspace's; nil where it can. Errors: invalid_request.
func Check(slug string) *entity.Error {
	switch {
	case len(slug) < MinLength || len(slug) > MaxLength:
		return errLength
	case strings.ContainsFunc(slug, foreign):
		return errAlphabet
	case slug[0] < 'a' || slug[len(slug)-1] == '-':
		return errEnds
	case strings.Contains(slug, "--"):
		// Two hyphens part an app from its workspace in a host name.
		return errHyphens
	case reserved[slug]:
		return errReserved
	}
	return nil
}

func foreign(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
}

var reserved = func() map[string]bool {
	words := make(map[string]bool)
	for word := range strings.FieldsSeq(`
		root api www web admin administrator app apps mail email smtp imap pop pop3 ftp sftp ssh dns ns1 ns2 mx1 mx2
		static assets cdn media docs help status support blog news about legal privacy terms security abuse contact
		postmaster hostmaster webmaster noreply no-reply
		auth login logout signin sign-in signup sign-up register oauth oauth2 sso account accounts billing
		settings system internal edge console dashboard proxy gateway
		user users workspace workspaces agent agents session sessions drive files
		health healthz readyz livez metrics debug localhost local test example
		autoconfig autodiscover wpad well-known
		atelier
	`) {
		words[word] = true
	}
	return words
}()
