package webdav

import (
	"net/http"
	"strconv"
	"strings"
)

// withRange returns the request with a Range header that http.ServeContent reads as RFC 9110, section 14, wants for a file of a size:
//
//   - Only GET has ranges, a unit other than bytes is ignored, and the unit may be in any case.
//   - A number may have any count of digits. ServeContent refuses a number that does not fit in 64 bits.
//   - The last 0 bytes are a range without a byte. ServeContent would answer with an impossible Content-Range.
//   - No range of an empty file has a byte, so that the whole file is the answer.
func withRange(r *http.Request, size int64) *http.Request {
	header := r.Header.Get("Range")
	if header == "" {
		return r
	}
	unit, ranges, _ := strings.Cut(header, "=")
	r = r.Clone(r.Context())
	if r.Method != http.MethodGet || !strings.EqualFold(unit, "bytes") || size == 0 {
		r.Header.Del("Range")
		return r
	}
	var parts []string
	for part := range strings.SplitSeq(ranges, ",") {
		first, last, found := strings.Cut(strings.Trim(part, " \t"), "-")
		first, last = boundedNumber(first), boundedNumber(last)
		if found && first == "" && last == "0" {
			first, last = strconv.FormatInt(size, 10), ""
		}
		if found {
			first += "-"
		}
		parts = append(parts, first+last)
	}
	r.Header.Set("Range", "bytes="+strings.Join(parts, ","))
	return r
}

// boundedNumber returns a decimal number without leading zeros, and at most the greatest number of 64 bits. It returns any other text
// unchanged.
func boundedNumber(text string) string {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return text
	}
	if text = strings.TrimLeft(text, "0"); text == "" {
		return "0"
	}
	const greatest = "9223372036854775807"
	if len(text) > len(greatest) || len(text) == len(greatest) && text > greatest {
		return greatest
	}
	return text
}
