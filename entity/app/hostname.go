package app

import (
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/atelier-run/atelier/entity"
)

// MaxHostname and maxLabel are the greatest lengths of a host name and of one of its labels, in characters (specification, App
// domain).
const (
	MaxHostname = 253
	maxLabel    = 63
)

var (
	errHostname     = entity.Errorf(entity.InvalidRequest, "hostname must have two or more labels of a-z, 0-9 and inner hyphens, each of at most %d characters, and at most %d in total", maxLabel, MaxHostname)
	errAddress      = entity.Errorf(entity.InvalidRequest, "hostname must not be an IP address")
	errPublicSuffix = entity.Errorf(entity.InvalidRequest, "hostname is a public suffix, below which anyone can register names")
	errPunycode     = entity.Errorf(entity.InvalidRequest, "hostname has a label that is not a valid internationalized name")
)

// CanonicalHostname returns the form in which a host name is bound: in lower case and without a trailing dot. Errors: invalid_request
// unless an app may have the host name. The platform's own names are not known here; the API refuses them.
func CanonicalHostname(text string) (string, error) {
	name := strings.TrimSuffix(strings.ToLower(text), ".")
	labels := strings.Split(name, ".")
	if len(name) > MaxHostname {
		return "", errHostname
	}
	for _, label := range labels {
		if !isLabel(label) {
			return "", errHostname
		}
	}
	switch {
	case strings.Trim(labels[len(labels)-1], "0123456789") == "":
		// No top-level domain is a number (RFC 3696, section 2), and browsers take such a name for an address.
		return "", errAddress
	case len(labels) < 2:
		return "", errHostname
	}
	for _, label := range labels {
		if strings.HasPrefix(label, "xn--") && !isPunycode(label) {
			return "", errPunycode
		}
	}
	if suffix, _ := publicsuffix.PublicSuffix(name); suffix == name {
		return "", errPublicSuffix
	}
	return name, nil
}

func isLabel(label string) bool {
	return label != "" && len(label) <= maxLabel && label[0] != '-' && label[len(label)-1] != '-' &&
		!strings.ContainsFunc(label, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}

// isPunycode reports whether a label is the one form of a valid internationalized label (RFC 5891): it decodes, and encodes to itself
// again.
func isPunycode(label string) bool {
	decoded, err := idna.Registration.ToUnicode(label)
	if err != nil || decoded == label {
		return false
	}
	encoded, err := idna.Registration.ToASCII(decoded)
	return err == nil && encoded == label
}
