package binding

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// The bounds of host names (specification, App domain).
const (
	maxHostnameLength = 253
	maxLabelLength    = 63
	// recordPrefix is the label of the TXT record that proves a name.
	recordPrefix = "_atelier."
)

var (
	errHostnameLength = entity.Errorf(entity.InvalidRequest, "hostname must have at least two labels and at most %d characters", maxHostnameLength)
	errHostnameLabel  = entity.Errorf(entity.InvalidRequest,
		"hostname must consist of labels of a-z, 0-9 and inner hyphens, each of at most %d characters; names in other scripts are given in their form with xn--, and wildcards are not possible",
		maxLabelLength)
	errHostnameAddress = entity.Errorf(entity.InvalidRequest, "hostname must be a name and not an address")
)

// NormalizeHostname returns a host name in lower case without a trailing dot.
func NormalizeHostname(hostname string) string {
	return strings.ToLower(strings.TrimSuffix(hostname, "."))
}

// CheckHostname returns an error unless a text may be the host name of a binding: lower-case labels of letters, digits and inner
// hyphens. The last label is not a number. Wildcards and names in other scripts than ASCII are not valid. A name with a label
// that begins with xn-- is a name like any other: however similar it looks to another name, it is proved by records of its own.
// Errors: invalid_request.
func CheckHostname(hostname string) *entity.Error {
	labels := strings.Split(hostname, ".")
	if len(hostname) > maxHostnameLength || len(labels) < 2 {
		return errHostnameLength
	}
	for _, label := range labels {
		if label == "" || len(label) > maxLabelLength || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return errHostnameLabel
		}
	}
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return errHostnameAddress
	}
	return nil
}

// RecordName returns the name of the TXT record that proves a host name. It is longer than names can be if the host name has nearly
// the greatest length; such a name can be claimed, and fails.
func RecordName(hostname string) string { return recordPrefix + hostname }

// Token returns the value of the TXT record that allows a workspace to use a host name. The owner of the name publishes it.
// It depends on the workspace, so that the record proves nothing for another workspace, and it is no secret.
func Token(workspace, hostname string) string {
	sum := sha256.New()
	for _, part := range []string{"atelier domain v1", workspace, hostname} {
		sum.Write([]byte(part))
		sum.Write([]byte{0})
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum.Sum(nil)))
}
