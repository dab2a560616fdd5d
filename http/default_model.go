package http

import (
	"google.golang.org/protobuf/proto"

	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

type defaultModel struct {
	Tier string `json:"tier"`
}

func checkTier(in *defaultModel) error {
	if _, ok := named(tierNames, in.Tier); !ok {
		return invalid("tier must be one of frontier, balanced, openai-frontier, openai-max, anthropic-frontier, anthropic-max")
	}
	return nil
}

func (s *Server) changeDefaultModel(c *call, in defaultModel) (defaultModel, error) {
	tier, _ := named(tierNames, in.Tier)
	_, err := ask[proto.Message](c, c.change(&workspacev1.SetDefaultModel{Tier: tier}))
	return in, err
}
