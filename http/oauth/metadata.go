package oauth

import "github.com/atelier-run/atelier/entity"

// ServerMetadata describes the authorization server (RFC 8414, section 2; RFC 9207, section 3; RFC 9728, section 4).
type ServerMetadata struct {
	Issuer                        string   `json:"issuer"`
	AuthorizationEndpoint         string   `json:"authorization_endpoint"`
	TokenEndpoint                 string   `json:"token_endpoint"`
	RegistrationEndpoint          string   `json:"registration_endpoint"`
	RevocationEndpoint            string   `json:"revocation_endpoint"`
	ScopesSupported               []string `json:"scopes_supported"`
	ResponseTypesSupported        []string `json:"response_types_supported"`
	ResponseModesSupported        []string `json:"response_modes_supported"`
	GrantTypesSupported           []string `json:"grant_types_supported"`
	TokenAuthMethodsSupported     []string `json:"token_endpoint_auth_methods_supported"`
	RevokeAuthMethodsSupported    []string `json:"revocation_endpoint_auth_methods_supported"`
	ChallengeMethodsSupported     []string `json:"code_challenge_methods_supported"`
	IssuerInAuthorizationResponse bool     `json:"authorization_response_iss_parameter_supported"`
	ProtectedResources            []string `json:"protected_resources"`
}

// ResourceMetadata describes the API, or another resource, as a protected resource (RFC 9728, section 2).
type ResourceMetadata struct {
	Resource               string   `json:"resource"`
	AuthorizationServers   []string `json:"authorization_servers"`
	ScopesSupported        []string `json:"scopes_supported"`
	BearerMethodsSupported []string `json:"bearer_methods_supported"`
	ResourceName           string   `json:"resource_name"`
}

var responseTypes = []string{"code"}

// scopeDescriptions describes each capability to the person who grants it. A client with sessions gives work to agents. The agents have
// the rights of the client.
var scopeDescriptions = map[string]string{
	entity.Admin:        "Administer the workspace: its name, people's roles, suspension, audit log",
	entity.Agents:       "Set up agents",
	entity.Apps:         "See and manage apps; to set what an app runs, also the rights to run programs and to read and change files",
	entity.FilesRead:    "Read files and who did what to them",
	entity.FilesWrite:   "Change, create and delete files, also those of apps and agents, which run with rights of their own",
	entity.Integrations: "Use and set up integrations",
	entity.Members:      "Invite people, to roles with no more than these permissions",
	entity.Memory:       "Read and change what agents remember",
	entity.Publish:      "Publish apps to anyone",
	entity.Services:     "Run any program in the workspace's computer, also by agents, which can read and change all files",
	entity.Sessions:     "Read sessions and give work to agents, which may do what is permitted here and nothing else",
	entity.Share:        "Share files",
}

// DescribeScope returns a description of a scope; "" if there is no such scope.
func DescribeScope(scope string) string { return scopeDescriptions[scope] }

// Server returns the authorization server's metadata for clients that know it by an origin.
func (p *Provider) Server(origin string) ServerMetadata {
	return ServerMetadata{
		Issuer:                origin,
		AuthorizationEndpoint: origin + AuthorizePath,
		TokenEndpoint:         origin + TokenPath, RegistrationEndpoint: origin + RegisterPath,
		RevocationEndpoint: origin + RevokePath, ScopesSupported: p.Scopes,
		ResponseTypesSupported: responseTypes, ResponseModesSupported: []string{"query"}, GrantTypesSupported: grantTypes,
		TokenAuthMethodsSupported: noMethods, RevokeAuthMethodsSupported: noMethods,
		ChallengeMethodsSupported: []string{"S256"}, IssuerInAuthorizationResponse: true,
		ProtectedResources: p.identifiers(origin),
	}
}

// noMethods are the methods of client authentication: all clients are public.
var noMethods = []string{"none"}

// Resource returns the API's metadata for clients that know it by an origin.
func (p *Provider) Resource(origin string) ResourceMetadata {
	return ResourceMetadata{
		Resource: origin, AuthorizationServers: []string{origin}, ScopesSupported: p.Scopes,
		BearerMethodsSupported: []string{"header"}, ResourceName: "Atelier",
	}
}

// Part returns the metadata of a resource besides the API.
func (p *Provider) Part(origin string, r Resource) ResourceMetadata {
	m := p.Resource(origin)
	m.Resource, m.ResourceName, m.ScopesSupported = origin+r.Path, r.Name, r.Scopes
	return m
}
