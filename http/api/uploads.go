package api

import (
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// An upload for a session passes these steps:
//
//  1. offerUpload chooses a path that no other upload gets, below uploads/ and the day, creates the folder, and returns a URL
//     with a token: the path, the size and the credential, encrypted and authenticated with the installation's secret.
//  2. upload opens the token, looks up the credential, which may have been revoked meanwhile, and has the drive write the file as
//     that credential. The write creates the file and never replaces one. After the file has been deleted or renamed, the activity
//     of the workspace still has its creation, so that a URL works once, also after a restart.
//
// A body that breaks off or has another size writes nothing, and the URL can be used again until it expires.

const (
	// uploadPath is the path of the URL of an upload.
	uploadPath = "/v1/uploads/{token}"
	// uploadFolder is the folder of the drive for uploads.
	uploadFolder = "uploads"
	// uploadTime is the time in which the URL of an upload is valid.
	uploadTime = time.Hour
	// maxUploadName bounds the name of an uploaded file, in bytes.
	maxUploadName = 200
	// uploadSuffix is the number of characters that make the name of an upload unique.
	uploadSuffix = 10
)

type uploadRequest struct {
	Name      string  `json:"name"`
	Size      *int64  `json:"size"`
	MediaType *string `json:"mediaType"`
}

type uploadView struct {
	UploadURL string `json:"uploadUrl"`
	Path      string `json:"path"`
	ExpiresAt int64  `json:"expiresAt"`
}

// uploadToken is the content of the token in the URL of an upload. It has no media type: the token could then be longer than the text
// of a cursor may be, and the drive stores none.
type uploadToken struct {
	WorkspaceID  string `json:"w"`
	CredentialID string `json:"c"`
	Path         string `json:"p"`
	Size         int64  `json:"s"`
	ExpiresAt    int64  `json:"e"`
}

// uploadBinding binds the tokens to their purpose.
var uploadBinding = server.Binding("upload")

func checkUpload(in *uploadRequest) error {
	switch {
	case !isLabel(in.Name) || len(in.Name) > maxUploadName || !server.IsEntryName(in.Name) || entity.CheckPath(in.Name) != nil:
		return server.Invalid("name must be the name of a file of 1 to %d bytes, without slashes and control characters", maxUploadName)
	case in.Size == nil || *in.Size < 0 || *in.Size > entity.MaxTime:
		return server.Invalid("size must be an integer from 0 to %d", uint64(entity.MaxTime))
	case in.MediaType != nil && !isMediaType(*in.MediaType):
		return server.Invalid("mediaType must be a media type")
	}
	return nil
}

// offerUpload offers an upload of one file.
func (s sessions) offerUpload(c *server.Call, in uploadRequest) (uploadView, error) {
	if err := c.Authorize(); err != nil {
		return uploadView{}, err
	}
	now := c.Now()
	folder := path.Join(uploadFolder, now.UTC().Format(time.DateOnly))
	err := s.Folders.MakeFolders(c.Context, c.Workspace.ID, folder, entity.DriveAccess{
		WorkspaceID: c.Workspace.ID, Principal: c.Caller.Principal, Authenticate: c.Reauthenticate, Authorize: c.Authorize,
	})
	if err != nil {
		return uploadView{}, err
	}
	token := uploadToken{
		WorkspaceID: c.Workspace.ID, CredentialID: c.Caller.Principal.GetCredentialId(), Size: *in.Size,
		Path: path.Join(folder, uniqueName(in.Name, c.NewID("upl_"))), ExpiresAt: now.Add(uploadTime).UnixMilli(),
	}
	text, err := json.Marshal(token)
	if err != nil {
		return uploadView{}, err
	}
	link := c.Link(strings.Replace(uploadPath, "{token}", c.SealCursor(string(text), uploadBinding), 1))
	return uploadView{link, token.Path, token.ExpiresAt}, nil
}

// uniqueName returns a name with the end of an id before its extension.
func uniqueName(name, id string) string {
	extension := path.Ext(name)
	if extension == name { // a name like .profile has none
		extension = ""
	}
	return strings.TrimSuffix(name, extension) + "-" + id[len(id)-uploadSuffix:] + extension
}

var (
	errUploadEnded = entity.Errorf(entity.UploadEnded, "the upload has expired; request another one")
	errUploadUsed  = entity.Errorf(entity.UploadEnded, "the file was uploaded already")
)

// upload writes the file of the token in the path. Errors: not_found if the token is none, upload_ended if it has expired or was used,
// invalid_request if the body has another size, unauthorized if the credential was revoked, the errors of access and of the drive.
func (s sessions) upload(c *server.Call) error {
	var token uploadToken
	text, err := c.OpenCursor(c.Variable("token"), uploadBinding)
	if err == nil {
		err = json.Unmarshal([]byte(text), &token)
	}
	switch {
	case err != nil:
		return server.ErrNotFound
	case c.Now().UnixMilli() >= token.ExpiresAt:
		return errUploadEnded
	case c.Request.ContentLength != token.Size:
		return server.Invalid("the body must have Content-Length %d, as announced", token.Size)
	}
	if err := c.ActAs(token.CredentialID, token.WorkspaceID); err != nil {
		return err
	}
	authorize := func() error { return authorizeUpload(c) }
	if err := authorize(); err != nil {
		return err
	}
	if used, err := s.wasUploaded(c, token); err != nil {
		return err
	} else if used {
		return errUploadUsed
	}
	return c.TransferTo(func(r *http.Request) error {
		return s.files.ServeUpload(c.Response, r, "/drive", token.Path, entity.DriveAccess{
			WorkspaceID: token.WorkspaceID, Host: c.PublicHost(), Principal: c.Caller.Principal,
			Authenticate: c.Reauthenticate, Authorize: authorize,
		})
	})
}

// wasUploaded reports whether the file of an upload exists or was created before.
func (s sessions) wasUploaded(c *server.Call, token uploadToken) (bool, error) {
	if exists, err := s.files.Exists(c.Context, token.WorkspaceID, token.Path); exists || err != nil {
		return exists, err
	}
	query := activityQuery(c, &activityv1.ReadHistory{Path: token.Path, Limit: 1})
	query.Principal = entity.Platform() // a credential that writes files may lack files:read
	page, err := server.Ask[*activityv1.Page](c, query)
	return len(page.GetItems()) > 0, err
}

// authorizeUpload asks the workspace of an upload whether its credential may still write files.
func authorizeUpload(c *server.Call) error {
	_, err := server.Ask[*workspacev1.Authorized](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.Workspace.ID,
		Message: &workspacev1.Authorize{Any: []string{entity.FilesWrite}, Changes: true},
	})
	return err
}
