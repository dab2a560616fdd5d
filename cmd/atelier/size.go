package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A size is a number of bytes, written as 1048576, 1MiB or 1GiB.
type size int64

var units = []struct {
	name  string
	bytes size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

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
		return fmt.Errorf("%q is not a size, such as 1048576, 512KiB or 1GiB", text)
	}
	*s = size(n) * unit
	return nil
}

func (s size) String() string {
	for _, u := range units {
		if s != 0 && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", s/u.bytes, u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
