package drive

import (
	"archive/tar"
	"context"
	"errors"
	"io"
)

// VerifyArchive reads an archive to its end and checks that Export can have written each entry. It needs no drive and creates
// nothing. Only Restore checks that hard links lead to earlier entries. VerifyArchive returns the number of entries, Corrupt or ctx's
// error.
func VerifyArchive(ctx context.Context, archive io.Reader) (entries int64, err error) {
	u := &unpacker{ctx: ctx}
	in := tar.NewReader(contextReader{ctx, archive})
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return entries, u.readError(err)
		}
		if err := checkEntry(h); err != nil {
			return entries, err
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			return entries, u.readError(err)
		}
		entries++
	}
	if _, err := io.Copy(io.Discard, contextReader{ctx, archive}); err != nil {
		return entries, u.readError(err)
	}
	return entries, nil
}

// checkEntry returns Corrupt for an entry that Export does not write.
func checkEntry(h *tar.Header) error {
	if _, err := entryName(h.Name); err != nil {
		return err
	}
	if n := len(h.PAXRecords[propsRecord]); n > maxProps {
		return corrupt("the archive has an entry with properties of %d bytes, which is more than %d", n, maxProps)
	}
	if _, _, err := attributesOf(h); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
		return nil
	case tar.TypeLink:
		if _, err := entryName(h.Linkname); err != nil {
			return corrupt("the archive has the entry %q, a hard link to the invalid path %q", h.Name, h.Linkname)
		}
		return nil
	}
	return corrupt("the archive has an entry of the unsupported type %q", h.Typeflag)
}
