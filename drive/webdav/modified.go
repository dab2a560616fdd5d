package webdav

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// Clients of ownCloud and Nextcloud, and rclone, set the modification time of a file by the header X-OC-Mtime of PUT, COPY and MOVE, and by
// the property DAV:lastmodified. Both are in seconds since the Unix epoch.

// changeWithTime is the function change for PUT, COPY and MOVE. The change has the modification time in the X-OC-Mtime header, if there is one.
// changeWithTime returns InvalidRequest if the header is malformed.
func (c *call) changeWithTime() (drive.Change, error) {
	change, err := c.change()
	value := c.r.Header.Get("X-OC-Mtime")
	if err != nil || value == "" {
		return change, err
	}
	at, ok := parseSeconds(value)
	if !ok {
		return change, entity.Errorf(entity.InvalidRequest, "the X-OC-Mtime header must be a number of seconds since 1970, in the years 1 to 9999")
	}
	change.Modified = at
	return change, nil
}

// confirmModified says that an entry has the time that the request has asked for. File systems have no times before or after some year.
func (c *call) confirmModified(change drive.Change, entry drive.Entry) {
	if !change.Modified.IsZero() && entry.Modified.Unix() == change.Modified.Unix() {
		c.w.Header().Set("X-OC-MTime", "accepted")
	}
}

var secondsForm = regexp.MustCompile(`^(-?[0-9]{1,12})(?:\.([0-9]+))?$`)

// The first and the last second of the years that HTTP dates can name.
var (
	firstSecond = time.Date(1, time.January, 1, 0, 0, 1, 0, time.UTC).Unix() // the second before is time.Time's zero
	lastSecond  = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC).Unix()
)

// parseSeconds returns the time that is a decimal number of seconds after the Unix epoch, in whole nanoseconds. ok is false if the text is
// not such a number, or the year is not from 1 to 9999.
func parseSeconds(text string) (at time.Time, ok bool) {
	parts := secondsForm.FindStringSubmatch(text)
	if parts == nil {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	nanoseconds, err := strconv.ParseInt((parts[2] + "000000000")[:9], 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	if strings.HasPrefix(text, "-") {
		nanoseconds = -nanoseconds
	}
	at = time.Unix(seconds, nanoseconds)
	return at, at.Unix() >= firstSecond && at.Unix() <= lastSecond
}
