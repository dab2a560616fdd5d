package email

import (
	"strings"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
)

// Limits of an address, in bytes.
const (
	// MaxLength is the greatest length of an address (RFC 5321, section 4.5.3.1.3, without the angle brackets).
	MaxLength = 254
	// MaxLocal is the greatest length of the local part, before the @ (section 4.5.3.1.1).
	MaxLocal = 64
	// MaxLabel is the greatest length of each label of the domain (RFC 1035, section 2.3.4).
	MaxLabel = 63
)

var (
	errLength = entity.Errorf(entity.InvalidRequest, "email must have at most %d bytes", MaxLength)
	errASCII  = entity.Errorf(entity.InvalidRequest, "email must be ASCII; write internationalised domains with xn--")
	errForm   = entity.Errorf(entity.InvalidRequest, "email is not an address")
	errLocal  = entity.Errorf(entity.InvalidRequest, "email must have at most %d bytes before the @", MaxLocal)
	errDomain = entity.Errorf(entity.InvalidRequest,
		"email must end in a domain, whose parts have 1 to %d letters, digits and inner hyphens", MaxLabel)
	errCase = entity.Errorf(entity.InvalidRequest, "email is not lower-case")
)

// Canonical returns an address in lower case, the form that is the identity of its entity. Errors: invalid_request.
func Canonical(text string) (string, error) {
	if isASCII(text) { // ToLower would turn other letters into ASCII: U+212A, the Kelvin sign, becomes k
		text = strings.ToLower(text)
	}
	if err := Check(text); err != nil {
		return "", err
	}
	return text, nil
}

// Check returns an error unless a text is an address in lower case: a Mailbox (RFC 5321, section 4.1.2) without quoted
// strings and address literals. Errors: invalid_request.
func Check(address string) *entity.Error {
	local, domain, found := strings.Cut(address, "@")
	switch {
	case len(address) > MaxLength:
		return errLength
	case !isASCII(address):
		return errASCII
	case !found || !allParts(local, isAtom):
		return errForm
	case len(local) > MaxLocal:
		return errLocal
	case !allParts(domain, isLabel):
		return errDomain
	case strings.ToLower(address) != address:
		return errCase
	}
	return nil
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// allParts reports whether isValid is true for each part of a text between dots.
func allParts(text string, isValid func(string) bool) bool {
	for part := range strings.SplitSeq(text, ".") {
		if !isValid(part) {
			return false
		}
	}
	return true
}

func isAtom(part string) bool {
	return part != "" && strings.IndexFunc(part, func(r rune) bool {
		return !isAlphanumeric(r) && !strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", r)
	}) < 0
}

func isLabel(part string) bool {
	return part != "" && len(part) <= MaxLabel && part[0] != '-' && part[len(part)-1] != '-' &&
		strings.IndexFunc(part, func(r rune) bool { return !isAlphanumeric(r) && r != '-' }) < 0
}

func isAlphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
