package operator

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	"github.com/atelier-run/atelier/service"
)

// RenewCertificate replaces the certificate of a host of the node itself: it is requested at once if this member maintains the host, and
// otherwise later. Errors: *entity.Error if the node does not request the certificate of the host, or has none yet.
type RenewCertificate func(ctx context.Context, host string) error

// domains serves the custom domains that need an operator for their removal, and renews certificates; see entity/binding.
type domains struct {
	directory Directory
	renewHost RenewCertificate
}

func (d domains) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: adminDomains, Scope: server.ScopeOperator, Summary: "List the custom domains whose removal needs an operator",
			Handler: server.Answer(http.StatusOK, decodeOwnersPage, d.list)},
		{Method: http.MethodPost, Path: adminDomains + "/{hostname}/repair", Scope: server.ScopeOperator, Summary: "Repeat the removal of a custom domain, or free its name",
			Handler: server.Answer(http.StatusOK, server.Body[repairRequest], d.repair)},
		{Method: http.MethodPost, Path: adminDomains + "/{hostname}/renew", Scope: server.ScopeOperator, Summary: "Request another certificate for a host",
			Handler: server.Answer(http.StatusOK, server.Nothing, d.renew)},
	}
}

type domainRecord struct {
	Hostname    string `json:"hostname"`
	WorkspaceID string `json:"workspaceId,omitzero"`
	AppID       string `json:"appId,omitzero"`
	DomainID    string `json:"domainId,omitzero"`
	// Status is removing, or released for a name that is free.
	Status string `json:"status"`
	// LastError is the reason why the last clean-up failed.
	LastError              string `json:"lastError,omitzero"`
	LastAttemptAt          int64  `json:"lastAttemptAt,omitzero"`
	OperatorRepairRequired bool   `json:"operatorRepairRequired,omitzero"`
	// RetryRequired: a member can request another clean-up.
	RetryRequired bool `json:"retryRequired,omitzero"`
}

type repairRequest struct {
	// Release frees the name without removing its certificates.
	Release bool `json:"release"`
}

var errNotRemoving = entity.Errorf(entity.InvalidRequest, "the custom domain is not being removed, so that there is nothing to repair; members remove it from its app")

var errNotActive = entity.Errorf(entity.InvalidRequest, "the custom domain is not active, so that it has no certificate to renew; \"atelier app domain show\" says why")

func viewBinding(b *bindingv1.Binding) domainRecord {
	if b.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_UNSPECIFIED {
		return domainRecord{Hostname: b.GetHostname(), Status: "released"}
	}
	return domainRecord{
		Hostname: b.GetHostname(), WorkspaceID: b.GetWorkspaceId(), AppID: b.GetAppId(), DomainID: b.GetDomainId(), Status: "removing",
		LastError: b.GetLastError(), LastAttemptAt: b.GetLastCheckedAt(),
		OperatorRepairRequired: b.GetOperatorRepairRequired(), RetryRequired: b.GetRetryRequired(),
	}
}

func (d domains) list(c *server.Call, in server.Listing) (operatorPage[domainRecord], error) {
	return readOwners(c, d.directory, binding.RepairList, in, func(hostname string) (domainRecord, error) {
		page, err := readRows(c, d.directory, hostname, binding.RepairList, server.Listing{Limit: 1})
		switch {
		case err != nil:
			return domainRecord{}, err
		case len(page.GetRows()) == 0: // repaired since the names were read
			return domainRecord{Hostname: hostname, Status: "released"}, nil
		}
		b := &bindingv1.Binding{}
		err = proto.Unmarshal(page.GetRows()[0], b)
		return viewBinding(b), err
	})
}

// repair starts the clean-up of a domain that is being removed again, or frees its name without it. It has no effect while a clean-up
// is in progress and in.Release is false. When it returns, the app knows of the change. Errors: invalid_request if the domain is not
// being removed, not_found if the name is not bound.
func (d domains) repair(c *server.Call, in repairRequest) (domainRecord, error) {
	b, err := d.find(c)
	switch {
	case err != nil:
		return domainRecord{}, err
	case b.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_UNSPECIFIED:
		return domainRecord{}, server.ErrNotFound
	case b.GetStatus() != appv1.DomainStatus_DOMAIN_STATUS_REMOVING:
		return domainRecord{}, errNotRemoving
	}
	// The id keeps the command from another domain that takes the name in the meantime.
	repair := &bindingv1.RepairBinding{DomainId: b.GetDomainId(), Release: in.Release}
	b, err = server.Ask[*bindingv1.Binding](c, service.PlatformCommand(c, entity.KindBinding, b.GetHostname(), repair))
	if err != nil {
		return domainRecord{}, err
	}
	return viewBinding(b), c.Settle(entity.KindBinding, b.GetHostname())
}

// find returns the binding of the host name in the path. Errors: invalid_request.
func (d domains) find(c *server.Call) (*bindingv1.Binding, error) {
	hostname := binding.NormalizeHostname(c.Variable("hostname"))
	if err := binding.CheckHostname(hostname); err != nil {
		return nil, err
	}
	return server.Ask[*bindingv1.Binding](c, service.PlatformCommand(c, entity.KindBinding, hostname, &bindingv1.DescribeBinding{}))
}

// renewal is the answer to a request for another certificate, which the node then requests.
type renewal struct {
	Hostname string `json:"hostname"`
	// Status is renewing.
	Status string `json:"status"`
	// Serial and NotAfter are the serial number and the end of the present certificate of a custom domain.
	Serial   string `json:"serial,omitzero"`
	NotAfter int64  `json:"notAfter,omitzero"`
}

// renew requests another certificate for an active custom domain, or for a host of the node itself. The present one serves until the other
// one is there. Errors: invalid_request if the custom domain is not active, the errors of RenewCertificate.
func (d domains) renew(c *server.Call, _ server.None) (renewal, error) {
	b, err := d.find(c)
	if err != nil {
		return renewal{}, err
	}
	answer := renewal{Hostname: b.GetHostname(), Status: "renewing", Serial: b.GetCertificate().GetSerial(), NotAfter: b.GetCertificate().GetNotAfter()}
	switch b.GetStatus() {
	case appv1.DomainStatus_DOMAIN_STATUS_UNSPECIFIED:
		return answer, d.renewHost(c.Context, b.GetHostname())
	case appv1.DomainStatus_DOMAIN_STATUS_ACTIVE:
	default:
		return renewal{}, errNotActive
	}
	// The id keeps the command from another domain that takes the name in the meantime.
	_, err = server.Ask[*bindingv1.Binding](c, service.PlatformCommand(c, entity.KindBinding, b.GetHostname(), &bindingv1.RenewBinding{DomainId: b.GetDomainId()}))
	return answer, err
}
