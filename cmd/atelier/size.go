package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a flag for a number of bytes, such as 1048576, 512KiB or 1GiB.
type size int64

// units lists the units of a size, largest first.
var units = []struct {
	name  string
	bytes size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// UnmarshalText sets the size from a number with an optional unit. It fails if text has another form, or if the size is negative
// or exceeds 64 bits.
func (s *size) UnmarshalText(text []byte) error {
	number, unit := string(text), size(1)
	for _, u := range units {
		if rest, found := strings.CutSuffix(number, u.name); found {
			number, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || size(n) > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a size: write a number of bytes, such as 1048576, 512KiB or 1GiB", text)
	}
	*s = size(n) * unit
	return nil
}

// String returns the size in the largest unit that divides it.
func (s size) String() string {
	for _, u := range units {
		if s != 0 && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", s/u.bytes, u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
