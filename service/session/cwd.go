package session

import (
	"context"

	"github.com/atelier-run/atelier/entity/session"
)

// ResolveCwd returns the real folder that a working directory in a request names, without links: a path relative to the root of the
// drive. Errors: invalid_cwd with a reason, the errors of the drive.
func (s *Service) ResolveCwd(ctx context.Context, workspaceID, cwd string) (string, error) {
	clean, refused := session.CleanCwd(cwd)
	if refused != nil {
		return "", refused
	}
	return s.Folders.ResolveFolder(ctx, workspaceID, clean)
}
