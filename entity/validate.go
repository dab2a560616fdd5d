package entity

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxNameLength is the greatest length of the name of a person, workspace, key or machine, in characters
	// (specification, Limits).
	MaxNameLength = 200
	// MaxPathBytes and MaxSegmentBytes are the greatest lengths of a drive path and of one segment of it, in bytes.
	MaxPathBytes    = 4096
	MaxSegmentBytes = 255
	// MaxIDLength is the greatest length of an id that arrives in a command, in bytes.
	MaxIDLength = 128
	// MaxScopes is the greatest number of scopes of an OAuth grant, MaxScopeLength the greatest length of each, in bytes.
	MaxScopes      = 64
	MaxScopeLength = 128
	// MaxTerminalSize is the greatest number of columns, and of rows, of a terminal.
	MaxTerminalSize = 1000
	// MaxVariableNameBytes is the greatest length of the name of an environment variable, in bytes.
	MaxVariableNameBytes = 256
)

var (
	errBlankName = Errorf(InvalidRequest, "name is blank")
	errScopes    = Errorf(InvalidRequest, "scopes must be 1 to %d, each of 1 to %d bytes", MaxScopes, MaxScopeLength)
)

// IsControl reports whether a character has no place in a name: a control character, one that ends a line or a paragraph, or one that
// changes the direction of the text after it (Unicode Standard Annex 9, section 2), so that the text around the name reads otherwise than
// it is stored. The marks U+061C, U+200E and U+200F change nothing but their own place, and names in Arabic and Hebrew have them.
func IsControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || IsDirectional(r)
}

// IsDirectional reports whether a character changes the direction of the text after it. Names that are older than IsControl have such
// characters, which pages and mails leave out.
func IsDirectional(r rune) bool {
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// isInvisible reports whether a character shows nothing by itself.
func isInvisible(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) }

// CheckText returns an error unless a text is UTF-8, contains no control character (IsControl) and has least to most characters.
// field is the name of the field in the error message. Errors: invalid_request.
func CheckText(field, text string, least, most int) *Error {
	switch length := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text), strings.ContainsFunc(text, IsControl):
		return Errorf(InvalidRequest, "%s has a control character or is not UTF-8", field)
	case length < least || least > 0 && length > most:
		return Errorf(InvalidRequest, "%s must have %d to %d characters", field, least, most)
	case length > most:
		return Errorf(InvalidRequest, "%s must have at most %d characters", field, most)
	}
	return nil
}

// CheckName returns an error unless a text may be the name of a person. An empty name is valid: names of people are
// optional. Errors: invalid_request.
func CheckName(name string) *Error { return CheckText("name", name, 0, MaxNameLength) }

// CheckLabel returns an error unless a text may be the name of an API key, a machine or an OAuth client, which must not be
// blank. Errors: invalid_request.
func CheckLabel(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if strings.TrimFunc(name, isInvisible) == "" {
		return errBlankName
	}
	return nil
}

// CheckScopes returns an error unless the texts may be the scopes of an OAuth grant. Errors: invalid_request.
func CheckScopes(scopes []string) error {
	if len(scopes) < 1 || len(scopes) > MaxScopes {
		return errScopes
	}
	for _, scope := range scopes {
		if scope == "" || len(scope) > MaxScopeLength || !utf8.ValidString(scope) || strings.ContainsFunc(scope, isOutsideScopes) {
			return errScopes
		}
	}
	return nil
}

func isOutsideScopes(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }

// CheckPath returns an error unless a path names a file or folder below the root of a drive. The root itself, the empty
// path, is not valid. Errors: invalid_request.
func CheckPath(path string) *Error {
	switch {
	case path == "":
		return Errorf(InvalidRequest, "path is empty")
	case len(path) > MaxPathBytes:
		return Errorf(InvalidRequest, "path is longer than %d bytes", MaxPathBytes)
	case !utf8.ValidString(path):
		return Errorf(InvalidRequest, "path is not UTF-8")
	}
	for segment := range strings.SplitSeq(path, "/") {
		switch {
		case segment == "":
			return Errorf(InvalidRequest, "path has an empty segment")
		case segment == "." || segment == "..":
			return Errorf(InvalidRequest, "path has a %q segment", segment)
		case len(segment) > MaxSegmentBytes:
			return Errorf(InvalidRequest, "path has a segment of more than %d bytes", MaxSegmentBytes)
		case strings.ContainsFunc(segment, unicode.IsControl):
			return Errorf(InvalidRequest, "path has a control character")
		}
	}
	return nil
}

// Within reports whether a path is equal to folder or below it; the empty folder is the root.
func Within(path, folder string) bool {
	if folder == "" || path == folder {
		return true
	}
	return len(path) > len(folder) && path[len(folder)] == '/' && strings.HasPrefix(path, folder)
}

// IsID reports whether a text may be an id that another entity, a client or an identity provider has chosen: 1 to
// MaxIDLength printable ASCII characters without spaces.
func IsID(id string) bool { return IsPrintableASCII(id, MaxIDLength) && !strings.Contains(id, " ") }

// IsPrintableASCII reports whether a text has 1 to most characters, all of them printable ASCII.
func IsPrintableASCII(text string, most int) bool {
	return text != "" && len(text) <= most && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// IsVariableName reports whether a text may be the name of an environment variable: 1 to MaxVariableNameBytes letters, digits
// and underscores of ASCII that do not begin with a digit.
func IsVariableName(text string) bool {
	if text == "" || len(text) > MaxVariableNameBytes || text[0] >= '0' && text[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// IsSHA256 reports whether a hash has the length of a SHA-256 hash.
func IsSHA256(hash []byte) bool { return len(hash) == sha256.Size }

// HashesEqual reports whether two SHA-256 hashes of secrets are equal. It takes constant time, and returns false if given
// is not a SHA-256 hash.
func HashesEqual(stored, given []byte) bool {
	return IsSHA256(given) && subtle.ConstantTimeCompare(stored, given) == 1
}

// A ULID is 128 bits, written as 26 digits of 5 bits each (github.com/ulid/spec). The first digit is at most 7. Ids are
// written in lower case.
const (
	ULIDLength = 26
	ULIDDigits = "0123456789abcdefghjkmnpqrstvwxyz"
)

// IsULID reports whether text is a ULID in lower case, its canonical form here.
func IsULID(text string) bool {
	return len(text) == ULIDLength && text[0] <= '7' && strings.Trim(text, ULIDDigits) == ""
}

// IsIDOf reports whether a text is an id of this platform with a prefix, which names its kind.
func IsIDOf(text, prefix string) bool {
	id, ok := strings.CutPrefix(text, prefix)
	return ok && IsULID(id)
}

// IsRequestID reports whether a text can be the id of a request, which is logged: it has 8 to 64 ASCII letters, digits, hyphens, underscores and dots.
func IsRequestID(text string) bool {
	for _, c := range []byte(text) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(text) >= 8 && len(text) <= 64
}
