package drive

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// attributeRecord begins the PAX records of extended attributes, in the form that other archivers use.
	attributeRecord = "SCHILY.xattr."
	// userAttribute begins the names of the attributes that processes may give to their files.
	userAttribute = "user."
	// ownAttribute begins the names of the attributes of the platform.
	ownAttribute = "user.atelier."
	// maxAttributes limits the bytes of the attributes of an entry in an archive, names included.
	maxAttributes = 512 << 10
)

// The name of a record has no equals sign.
var (
	escapeAttribute   = strings.NewReplacer("%", "%25", "=", "%3D")
	unescapeAttribute = strings.NewReplacer("%25", "%", "%3D", "=")
)

// addAttributes adds the attributes that processes have given to an open file or folder to the header. It returns false if the header
// lacks some because their names and values have more than limit bytes. value is a buffer of maxProps bytes, the kernel's limit for an
// attribute.
func addAttributes(h *tar.Header, file *os.File, value []byte, limit int) (isWhole bool, err error) {
	names, isWhole, err := listAttributes(int(file.Fd()))
	if err != nil {
		return false, err
	}
	total := 0
	for _, name := range names {
		n, err := unix.Fgetxattr(int(file.Fd()), name, value)
		if isAbsent(err) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return false, err
		}
		if total += len(name) + n; total > limit {
			return false, nil
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[attributeRecord+escapeAttribute.Replace(name)] = string(value[:n])
	}
	return isWhole, nil
}

// listAttributes returns the names of the attributes that processes have given to an open file or folder, and false if the names are too
// long for the kernel or grow meanwhile.
func listAttributes(fd int) (names []string, isWhole bool, err error) {
	size, err := unix.Flistxattr(fd, nil)
	if err == nil && size > 0 {
		list := make([]byte, size)
		size, err = unix.Flistxattr(fd, list)
		for name := range strings.SplitSeq(string(list[:max(size, 0)]), "\x00") {
			if strings.HasPrefix(name, userAttribute) && !strings.HasPrefix(name, ownAttribute) {
				names = append(names, name)
			}
		}
	}
	switch {
	case err == nil, isAbsent(err):
		return names, true, nil
	case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ERANGE):
		return nil, false, nil
	}
	return nil, false, err
}

// attributesOf returns the attributes in an entry by their names, and the number of their bytes. It returns Corrupt for attributes that
// Export does not write.
func attributesOf(h *tar.Header) (attributes map[string]string, size int64, err error) {
	for record, value := range h.PAXRecords {
		escaped, is := strings.CutPrefix(record, attributeRecord)
		if !is || record == propsRecord {
			continue
		}
		name := unescapeAttribute.Replace(escaped)
		if !strings.HasPrefix(name, userAttribute) || strings.HasPrefix(name, ownAttribute) {
			return nil, 0, corrupt("the archive has the entry %q with the attribute %q, which no process may set", h.Name, name)
		}
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes[name] = value
		size += int64(len(name) + len(value))
	}
	if size > maxAttributes {
		return nil, 0, corrupt("the archive has the entry %q with attributes of %d bytes, which is more than %d", h.Name, size, maxAttributes)
	}
	return attributes, size, nil
}

// setAttributes gives an open file or folder the attributes of its entry.
func setAttributes(file *os.File, h *tar.Header) error {
	attributes, _, err := attributesOf(h)
	if err != nil {
		return err
	}
	for name, value := range attributes {
		if err := unix.Fsetxattr(int(file.Fd()), name, []byte(value), 0); err != nil {
			return fmt.Errorf("the attribute %q of %q: %w", name, h.Name, err)
		}
	}
	return nil
}

// noteAttributes records that an entry lacks attributes.
func (e *exporter) noteAttributes(path string) {
	e.nameChanged(path)
	e.drive.drives.log.Warn("a file or folder lacks extended attributes in the archive because they are too large",
		"workspace", e.drive.workspaceID, "path", path)
}
