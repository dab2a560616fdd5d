package server

import (
	"slices"
	"strings"

	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// isDriveRequest reports whether the request is on a drive, or on a folder above the drives, where HTTP Basic is accepted too.
func (w *Response) isDriveRequest() bool {
	return w.operation != nil && (w.operation.IsAboveDrives || strings.HasPrefix(w.operation.Path, DrivePath))
}

// challenges returns the values of WWW-Authenticate.
func (w *Response) challenges() []string {
	if w.isDriveRequest() {
		return []string{w.bearerChallenge(), `Basic realm="Atelier", charset="UTF-8"`}
	}
	return []string{w.bearerChallenge()}
}

// ResourceMetadataPath is the path of the resource metadata that leads clients to the authorization server (RFC 9728).
const ResourceMetadataPath = "/.well-known/oauth-protected-resource"

// bearerChallenge returns the challenge for a request without a valid credential (RFC 6750, section 3; RFC 9728, section
// 5.1). If the request has a token, the challenge says that the token is invalid, but not why.
func (w *Response) bearerChallenge() string {
	scheme, token, _ := strings.Cut(w.Request.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && strings.Trim(token, " ") != "" {
		return `Bearer error="invalid_token", ` + w.metadataParameter()
	}
	return "Bearer " + w.metadataParameter()
}

// scopeChallenge returns the challenge for an OAuth token if its scope has none of the capabilities that the operation requires (RFC 6750,
// section 3.1); "" if the request was refused for another reason, such as the role of the person. The scope in the challenge has the
// token's capabilities, too, so that a client that asks for it loses none.
func (w *Response) scopeChallenge() string {
	if w.caller == nil || w.operation == nil || len(w.operation.need.Any) == 0 {
		return ""
	}
	granted := w.caller.Principal.GetGrants()
	isGranted := func(capability string) bool { return slices.Contains(granted, capability) }
	if w.caller.Principal.GetKind() != wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH || slices.ContainsFunc(w.operation.need.Any, isGranted) {
		return ""
	}
	scope := strings.Join(append(slices.Clone(granted), w.operation.need.Any[0]), " ")
	return `Bearer error="insufficient_scope", scope="` + scope + `", ` + w.metadataParameter()
}

// metadataParameter returns the parameter of a challenge that leads to the metadata of the operation's resource.
func (w *Response) metadataParameter() string {
	return `resource_metadata="` + w.server.OriginOf(w.Request) + ResourceMetadataPath + w.resource() + `"`
}

// resource returns the path of the resource of the operation; empty for the API.
func (w *Response) resource() string {
	if w.operation == nil {
		return ""
	}
	return w.operation.Resource
}
