package server

import "strings"

// isDriveRequest reports whether the request is on a drive, where HTTP Basic is accepted too.
func (w *Response) isDriveRequest() bool {
	return w.operation != nil && strings.HasPrefix(w.operation.Path, DrivePath)
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
	metadata := `resource_metadata="` + w.metadata + w.resource() + `"`
	scheme, token, _ := strings.Cut(w.Request.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && strings.Trim(token, " ") != "" {
		return `Bearer error="invalid_token", ` + metadata
	}
	return "Bearer " + metadata
}

// resource returns the path of the resource to which the operation belongs; empty for the API.
func (w *Response) resource() string {
	if w.operation == nil {
		return ""
	}
	return w.operation.Resource
}
