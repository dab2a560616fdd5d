package user

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
)

const (
	// MaxNameLength is the longest name of a person or a key, in characters.
	MaxNameLength = 200
	// MaxPartLength is the longest first or last name, in characters.
	MaxPartLength = 100
	// KeyPrefix begins a key's id; a lower-case ULID follows.
	KeyPrefix = "key_"
	// KeyStart begins a key as its holder presents it; the id follows, without KeyPrefix.
	KeyStart = "atl_"

	maxIDLength = 128
)

var (
	errNameText    = entity.Errorf(entity.InvalidRequest, "name has a control character or is not UTF-8")
	errNameLong    = entity.Errorf(entity.InvalidRequest, "name must have at most %d characters", MaxNameLength)
	errNameBlank   = entity.Errorf(entity.InvalidRequest, "name is blank")
	errExpiryPast  = entity.Errorf(entity.InvalidRequest, "expiresAt is in the past")
	errExpiryLate  = entity.Errorf(entity.InvalidRequest, "expiresAt must be at most %d", int64(entity.MaxTime))
	errKeyID       = entity.Errorf(entity.InvalidRequest, "keyId must be %s and a lower-case ULID", KeyPrefix)
	errSecret      = entity.Errorf(entity.InvalidRequest, "secretSha256 is no SHA-256")
	errNoEmail     = entity.Errorf(entity.InvalidRequest, "email is empty")
	errNoWorkspace = entity.Errorf(entity.InvalidRequest, "workspaceId is empty")
)

// CheckName tells why a text is no person's name; nil where it may be one, or is empty: a name is optional.
// Errors: invalid_request.
func CheckName(name string) *entity.Error {
	switch {
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return errNameText
	case utf8.RuneCountInString(name) > MaxNameLength:
		return errNameLong
	}
	return nil
}

// CheckLabel tells why a text names no key, machine or client: it must be a name, and not blank. Errors: invalid_request.
func CheckLabel(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if strings.TrimSpace(name) == "" {
		return errNameBlank
	}
	return nil
}

// checkPart is CheckName for a part of a person's name, with a length of its own.
func checkPart(field, name string) error {
	switch {
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return entity.Errorf(entity.InvalidRequest, "%s has a control character or is not UTF-8", field)
	case utf8.RuneCountInString(name) > MaxPartLength:
		return entity.Errorf(entity.InvalidRequest, "%s must have at most %d characters", field, MaxPartLength)
	}
	return nil
}

func isULID(id, prefix string) bool {
	ulid, found := strings.CutPrefix(id, prefix)
	return found && entity.IsULID(ulid)
}

// isID tells whether a text may be the id of something that is made elsewhere.
func isID(id string) bool {
	return isPrintable(id, maxIDLength) && !strings.Contains(id, " ")
}

// isPrintable tells whether a text has 1 to so many printable characters of ASCII and no others.
func isPrintable(text string, most int) bool {
	return text != "" && len(text) <= most && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}
