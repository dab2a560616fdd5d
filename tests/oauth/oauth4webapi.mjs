// An application that uses oauth4webapi as its documentation says, without a state: the server announces PKCE. Usage: node
// oauth4webapi.mjs URL COOKIE. No output is success.
import assert from 'node:assert/strict'
import * as oauth from 'oauth4webapi'
import { decide } from './person.mjs'

const [server, cookie] = process.argv.slice(2)
const redirect_uri = 'http://127.0.0.1:4712/callback'
const insecure = { [oauth.allowInsecureRequests]: true } // the server of the test is on a loopback address

const resource = await oauth.processResourceDiscoveryResponse(
  new URL(server), await oauth.resourceDiscoveryRequest(new URL(server), insecure))
const issuer = new URL(resource.authorization_servers[0])
const as = await oauth.processDiscoveryResponse(
  issuer, await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...insecure }))
const registered = await oauth.processDynamicClientRegistrationResponse(
  await oauth.dynamicClientRegistrationRequest(
    as, { client_name: 'oauth4webapi', redirect_uris: [redirect_uri], token_endpoint_auth_method: 'none' }, insecure))
const client = { client_id: registered.client_id }
const clientAuth = oauth.None()
assert.deepEqual(as.code_challenge_methods_supported, ['S256'])

const verifier = oauth.generateRandomCodeVerifier()
const back = await authorize(verifier)
const parameters = oauth.validateAuthResponse(as, client, back)
const tokens = await redeem(parameters, verifier)
assert.equal(tokens.scope, 'files:read files:write')
assert.equal((await whoami(tokens.access_token)).credential.kind, 'oauth')

const renewed = await oauth.processRefreshTokenResponse(
  as, client, await oauth.refreshTokenGrantRequest(as, client, clientAuth, tokens.refresh_token, insecure))
assert.equal((await whoami(renewed.access_token)).credential.kind, 'oauth')

await oauth.processRevocationResponse(
  await oauth.revocationRequest(as, client, clientAuth, renewed.refresh_token, insecure))
await assert.rejects(whoami(renewed.access_token), (error) => {
  assert.ok(error instanceof oauth.WWWAuthenticateChallengeError, error)
  const [challenge] = error.cause
  assert.equal(challenge.scheme, 'bearer')
  assert.equal(challenge.parameters.error, 'invalid_token')
  assert.equal(challenge.parameters.resource_metadata, new URL('/.well-known/oauth-protected-resource', server).href)
  return true
})

await anotherServerIsNoticed()
await anotherVerifierIsRefused()

async function authorize(verifier) {
  const asked = new URL(as.authorization_endpoint)
  asked.searchParams.set('client_id', client.client_id)
  asked.searchParams.set('redirect_uri', redirect_uri)
  asked.searchParams.set('response_type', 'code')
  asked.searchParams.set('scope', 'files:write files:read')
  asked.searchParams.set('code_challenge', await oauth.calculatePKCECodeChallenge(verifier))
  asked.searchParams.set('code_challenge_method', 'S256')
  return decide(asked, cookie)
}

async function redeem(parameters, verifier) {
  return oauth.processAuthorizationCodeResponse(
    as, client, await oauth.authorizationCodeGrantRequest(as, client, clientAuth, parameters, redirect_uri, verifier, insecure))
}

async function whoami(token) {
  const answer = await oauth.protectedResourceRequest(token, 'GET', new URL('/v1/whoami', server), undefined, undefined, insecure)
  assert.equal(answer.status, 200)
  return answer.json()
}

// A response of this server is refused by a client that waits for one of another server, and the other way round.
async function anotherServerIsNoticed() {
  const back = await authorize(oauth.generateRandomCodeVerifier())
  assert.equal(back.searchParams.get('iss'), as.issuer)
  assert.throws(() => oauth.validateAuthResponse({ ...as, issuer: 'https://other.example' }, client, back), /"iss"/)
  back.searchParams.set('iss', 'https://other.example')
  assert.throws(() => oauth.validateAuthResponse(as, client, back), /"iss"/)
}

async function anotherVerifierIsRefused() {
  const parameters = oauth.validateAuthResponse(as, client, await authorize(oauth.generateRandomCodeVerifier()))
  await assert.rejects(redeem(parameters, oauth.generateRandomCodeVerifier()), { error: 'invalid_grant' })
}
