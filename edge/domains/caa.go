package domains

import (
	"context"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// lookCAA looks up the CAA records that apply to a host: the records of the host itself or, if it has none, of the closest parent that has
// CAA records (RFC 8659, section 3). A resolver follows the CNAME records of each of these names. lookCAA fails if a query fails, because an
// authority would then refuse the name.
func (r *resolvers) lookCAA(ctx context.Context, v *view, host string, permits func([]*dns.CAA) bool) error {
	for name := host; name != ""; _, name, _ = strings.Cut(name, ".") {
		answers, _, err := r.query(ctx, v.resolver, name, dns.TypeCAA)
		if err != nil {
			return err
		}
		var all []*dns.CAA
		for _, rr := range answers {
			if caa, ok := rr.(*dns.CAA); ok {
				all = append(all, caa)
			}
		}
		if len(all) == 0 {
			continue
		}
		if !permits(all) {
			v.forbidsName = name
			for _, caa := range all {
				v.forbids = append(v.forbids, caa.Tag+" "+quoted(caa.Value))
			}
			slices.Sort(v.forbids)
		}
		return nil
	}
	return nil
}

func quoted(value string) string { return `"` + value[:min(len(value), maxTextBytes)] + `"` }

// permitsAuthority returns a function that reports whether CAA records permit the authority with the given identities to certify a name that is
// no wildcard (RFC 8659, section 4). If the records name methods of validation, they must name a method that this package uses (RFC 8657,
// section 4). The authority itself checks records that name an account.
func permitsAuthority(identities []string) func([]*dns.CAA) bool {
	return func(all []*dns.CAA) bool {
		restricted := false
		for _, caa := range all {
			if !strings.EqualFold(caa.Tag, "issue") {
				continue
			}
			restricted = true
			if permitsIssue(caa.Value, identities) {
				return !hasUnknownCritical(all)
			}
		}
		return !restricted && !hasUnknownCritical(all)
	}
}

// permitsIssue reports whether the value of a record permits the authority with the given identities.
func permitsIssue(value string, identities []string) bool {
	issuer, parameters, _ := strings.Cut(value, ";")
	named := func(identity string) bool { return strings.EqualFold(strings.TrimSpace(issuer), identity) }
	if !slices.ContainsFunc(identities, named) {
		return false
	}
	for parameter := range strings.SplitSeq(parameters, ";") {
		tag, methods, _ := strings.Cut(parameter, "=")
		if strings.TrimSpace(tag) != "validationmethods" {
			continue
		}
		used := func(method string) bool {
			return slices.Contains([]string{methodHTTP, methodTLS}, strings.TrimSpace(method))
		}
		if !slices.ContainsFunc(strings.Split(methods, ","), used) {
			return false
		}
	}
	return true
}

// hasUnknownCritical reports whether a record has a tag that is critical and unknown, so that no certificate may be issued.
func hasUnknownCritical(all []*dns.CAA) bool {
	known := []string{"issue", "issuewild", "issuemail", "issuevmc", "iodef", "contactemail", "contactphone"}
	return slices.ContainsFunc(all, func(caa *dns.CAA) bool {
		return caa.Flag&0x80 != 0 && !slices.Contains(known, strings.ToLower(caa.Tag))
	})
}
