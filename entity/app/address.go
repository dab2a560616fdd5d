package app

import "strings"

// slugSeparator separates the slug of the app from that of the workspace. Neither slug contains it (entity/slug).
const slugSeparator = "--"

// StandardHost returns the host of the standard address of an app below the edge host (specification, App rule 1).
func StandardHost(appSlug, workspaceSlug, edgeHost string) string {
	return appSlug + slugSeparator + workspaceSlug + "." + edgeHost
}

// SplitStandardHost returns the slugs of the app and of the workspace whose standard address has a host, which is in lower case and
// has no port. ok is false for any other host.
func SplitStandardHost(host, edgeHost string) (appSlug, workspaceSlug string, ok bool) {
	label, found := strings.CutSuffix(host, "."+edgeHost)
	if !found || strings.Contains(label, ".") {
		return "", "", false
	}
	appSlug, workspaceSlug, ok = strings.Cut(label, slugSeparator)
	return appSlug, workspaceSlug, ok && appSlug != "" && workspaceSlug != ""
}
