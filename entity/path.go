package entity

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a drive path, in bytes.
const (
	MaxPathBytes    = 4096
	MaxSegmentBytes = 255
)

// CheckPath tells why a path names no place below a drive's root; nil where it does. The root itself is not such a place.
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
