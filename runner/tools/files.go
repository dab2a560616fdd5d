package tools

import (
	"cmp"
	"context"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
)

// maxRead bounds the part of a file that one call reads, in bytes. Its JSON can be larger; then the call fails.
const maxRead = 32 << 10

// fileTools returns the tools for the files of a workspace.
func fileTools() []*tool {
	return []*tool{
		define(onlyElsewhere, "read_file", "Read a file of the workspace, or a part of it. Content that is not UTF-8 is base64.",
			reads, readFile),
		define(onlyElsewhere, "write_file", "Write a file of the workspace. It replaces the file, or creates it and its folders.",
			changes, writeFile),
		define(onlyElsewhere, "list_files", "List a folder of the workspace, by name.", reads, listFiles),
	}
}

// access returns the access of the caller to the drive, which is verified again right before a change.
func (c *call) access(ctx context.Context, capability string) entity.DriveAccess {
	return entity.DriveAccess{
		WorkspaceID: c.WorkspaceID, Principal: c.Principal, Authenticate: c.Authenticate,
		Authorize: func() error { return c.authorize(ctx, capability, capability == entity.FilesWrite) },
	}
}

type readFileIn struct {
	Path   string `json:"path" jsonschema:"the path of the file" bounds:"1:4096"`
	Offset int64  `json:"offset,omitzero" jsonschema:"the number of bytes to skip" bounds:"0:9007199254740991"`
	Limit  int64  `json:"limit,omitzero" jsonschema:"the number of bytes to read, 32768 if omitted" bounds:"1:32768"`
}

type readFileOut struct {
	// Size is the size of the file.
	Size int64 `json:"size"`
	// Offset is the position of the content in the file, and NextOffset of the next part; 0: this is the last.
	Offset     int64 `json:"offset"`
	NextOffset int64 `json:"nextOffset,omitzero"`
	// Text is the content if it is UTF-8, and Base64 otherwise.
	Text   string `json:"text,omitzero"`
	Base64 string `json:"base64,omitzero"`
}

// readFile reads a part of a file. The end of a part is moved to the end of a character. Errors: not_found, invalid_request,
// forbidden.
func readFile(ctx context.Context, c *call, in readFileIn) (readFileOut, error) {
	out := readFileOut{Offset: in.Offset}
	if err := entity.CheckPath(in.Path); err != nil {
		return out, err
	}
	if err := c.authorize(ctx, entity.FilesRead, false); err != nil {
		return out, err
	}
	limit := cmp.Or(in.Limit, maxRead)
	content, size, err := c.Files.Read(ctx, c.access(ctx, entity.FilesRead), in.Path, in.Offset, limit)
	if err != nil {
		return out, err
	}
	out.Size = size
	whole := content
	if in.Offset+int64(len(content)) < size {
		whole = wholeCharacters(content)
	}
	if utf8.Valid(whole) && !strings.ContainsRune(string(whole), 0) {
		out.Text = string(whole)
	} else {
		whole, out.Base64 = content, base64.StdEncoding.EncodeToString(content)
	}
	if next := in.Offset + int64(len(whole)); next < size {
		out.NextOffset = next
	}
	return out, nil
}

// wholeCharacters returns content without the part of a character at its end.
func wholeCharacters(content []byte) []byte {
	for cut := 1; cut <= min(utf8.UTFMax-1, len(content)-1); cut++ {
		if last := content[len(content)-cut:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return content[:len(content)-cut]
			}
			break
		}
	}
	return content
}

type writeFileIn struct {
	Path   string `json:"path" jsonschema:"the path of the file" bounds:"1:4096"`
	Text   string `json:"text,omitzero" jsonschema:"the content" bounds:"0:1000000"`
	Base64 string `json:"base64,omitzero" jsonschema:"the content in base64, in place of text" bounds:"0:1000000"`
}

type writeFileOut struct {
	Created bool `json:"created"`
	Size    int  `json:"size"`
}

// writeFile writes a file. Errors: invalid_request, forbidden, not_found, the errors of the drive.
func writeFile(ctx context.Context, c *call, in writeFileIn) (writeFileOut, error) {
	if err := entity.CheckPath(in.Path); err != nil {
		return writeFileOut{}, err
	}
	content := []byte(in.Text)
	if in.Base64 != "" {
		decoded, err := base64.StdEncoding.DecodeString(in.Base64)
		if err != nil || in.Text != "" {
			return writeFileOut{}, entity.Errorf(entity.InvalidRequest, "base64 must be base64, and text omitted")
		}
		content = decoded
	}
	if err := c.authorize(ctx, entity.FilesWrite, true); err != nil {
		return writeFileOut{}, err
	}
	created, err := c.Files.Write(ctx, c.access(ctx, entity.FilesWrite), in.Path, content)
	return writeFileOut{created, len(content)}, err
}

type listFilesIn struct {
	Path  string `json:"path,omitzero" jsonschema:"the folder; omitted: the root of the drive" bounds:"1:4096"`
	After string `json:"after,omitzero" jsonschema:"only names after this one; the last name of the previous page" bounds:"1:255"`
	Limit int    `json:"limit,omitzero" jsonschema:"the number of entries, 100 if omitted" bounds:"1:200"`
}

type listFilesOut struct {
	Entries []FileEntry `json:"entries"`
	// More reports that there are entries with later names.
	More bool `json:"more"`
}

// listFiles lists a folder. It keeps only the entries of the page in memory, however large the folder is. Errors: not_found,
// invalid_request, forbidden.
func listFiles(ctx context.Context, c *call, in listFilesIn) (listFilesOut, error) {
	out := listFilesOut{Entries: []FileEntry{}}
	if in.Path != "" {
		if err := entity.CheckPath(in.Path); err != nil {
			return out, err
		}
	}
	if err := c.authorize(ctx, entity.FilesRead, false); err != nil {
		return out, err
	}
	page := firstNames{most: cmp.Or(in.Limit, 100), after: in.After}
	err := c.Files.List(ctx, c.access(ctx, entity.FilesRead), in.Path, func(e FileEntry) bool {
		page.add(e)
		return true
	})
	if err != nil {
		return out, err
	}
	out.Entries, out.More = page.entries, page.more
	return out, nil
}
