package entity

import "strings"

// A ULID is 128 bits as 26 digits of 5 bits (github.com/ulid/spec): the first one is 7 at most. Ids here have it in lower
// case.
const (
	ULIDLength = 26
	ULIDDigits = "0123456789abcdefghjkmnpqrstvwxyz"
)

// IsULID tells whether text is a lower-case ULID in its one canonical spelling.
func IsULID(text string) bool {
	return len(text) == ULIDLength && text[0] <= '7' && strings.Trim(text, ULIDDigits) == ""
}
