package oauth

import (
	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// ServerMetadata tells clients of the authorization server (RFC 8414, section 2; RFC 9207; RFC 9728, section 4).
type ServerMetadata struct {
	Issuer                       string   `json:"issuer"`
	AuthorizationEndpoint        string   `json:"authorization_endpoint"`
	TokenEndpoint                string   `json:"token_endpoint"`
	RegistrationEndpoint         string   `json:"registration_endpoint"`
	RevocationEndpoint           string   `json:"revocation_endpoint"`
	ScopesSupported              []string `json:"scopes_supported"`
	ResponseTypesSupported       []string `json:"response_types_supported"`
	ResponseModesSupported       []string `json:"response_modes_supported"`
	GrantTypesSupported          []string `json:"grant_types_supported"`
	TokenAuthMethodsSupported    []string `json:"token_endpoint_auth_methods_supported"`
	RevokeAuthMethodsSupported   []string `json:"revocation_endpoint_auth_methods_supported"`
	ChallengeMethodsSupported    []string `json:"code_challenge_methods_supported"`
	IssuerInAuthorizationReponse bool     `json:"authorization_response_iss_parameter_supported"`
	ProtectedResources           []string `json:"protected_resources"`
}

// ResourceMetadata tells clients of the API as a protected resource (RFC 9728, section 2).
type ResourceMetadata struct {
	Resource               string   `json:"resource"`
	AuthorizationServers   []string `json:"authorization_servers"`
	ScopesSupported        []string `json:"scopes_supported"`
	BearerMethodsSupported []string `json:"bearer_methods_supported"`
	ResourceName           string   `json:"resource_name"`
}

var responseTypes = []string{"code"}

// scopes are what clients can ask for: the capabilities in a workspace, all of which its owner has.
var scopes = entity.Capabilities(&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER}, workspacev1.Role_ROLE_OWNER)

// words say what a scope allows, to who is asked for it.
var words = map[string]string{
	entity.Admin:        "Administer the workspace: its name, people's roles, suspension, audit log",
	entity.Agents:       "Set up agents",
	entity.Apps:         "See and manage apps",
	entity.FilesRead:    "Read files and who did what to them",
	entity.FilesWrite:   "Change, create and delete files",
	entity.Integrations: "Use and set up integrations",
	entity.Members:      "Invite people",
	entity.Memory:       "Read and change what agents remember",
	entity.Publish:      "Publish apps to anyone",
	entity.Services:     "Run services",
	entity.Sessions:     "Read and take part in sessions with agents",
	entity.Share:        "Share files",
}

// Words say what a scope allows.
func Words(scope string) string { return words[scope] }

// Server is the authorization server's metadata.
func (p *Provider) Server() ServerMetadata {
	return ServerMetadata{
		Issuer:                p.issuer,
		AuthorizationEndpoint: p.issuer + AuthorizePath,
		TokenEndpoint:         p.issuer + TokenPath, RegistrationEndpoint: p.issuer + RegisterPath,
		RevocationEndpoint: p.issuer + RevokePath, ScopesSupported: scopes,
		ResponseTypesSupported: responseTypes, ResponseModesSupported: []string{"query"}, GrantTypesSupported: grantTypes,
		TokenAuthMethodsSupported: noMethods, RevokeAuthMethodsSupported: noMethods,
		ChallengeMethodsSupported: []string{"S256"}, IssuerInAuthorizationReponse: true,
		ProtectedResources: []string{p.issuer},
	}
}

// noMethods is how public clients authenticate.
var noMethods = []string{"none"}

// Resource is the API's metadata.
func (p *Provider) Resource() ResourceMetadata {
	return ResourceMetadata{
		Resource: p.issuer, AuthorizationServers: []string{p.issuer}, ScopesSupported: scopes,
		BearerMethodsSupported: []string{"header"}, ResourceName: "Atelier",
	}
}
