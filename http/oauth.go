package http

// oauthRoutes is the table of the authorization server.
func (s *Server) oauthRoutes() []route { return nil }
