// node-oidc-provider with its defaults, which give the email address only at the userinfo endpoint (OpenID Connect Core 1.0, section
// 5.4). Its development pages let anybody sign in who enters a name of ACCOUNTS, a JSON object with the claims of each name. POST /rotate
// replaces its signing key. Usage: node oidc-provider.mjs CALLBACK ACCOUNTS. It prints its issuer and then serves.
import { generateKeyPairSync, randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { Provider } from 'oidc-provider'
import { createMemoryAdapter } from 'oidc-provider/lib/adapters/memory_adapter.js'

const [callback, accounts] = process.argv.slice(2)
const claims = new Map(Object.entries(JSON.parse(accounts)))
const adapter = createMemoryAdapter()

function newKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' }
}

// newHandler returns the handler of a provider with a new signing key, as after a restart with another configuration. The provider keeps
// its sessions and codes.
function newHandler(issuer) {
  return new Provider(issuer, {
    clients: [{ client_id: 'atelier', client_secret: 'agreed', redirect_uris: [callback] }],
    claims: { email: ['email', 'email_verified'] },
    findAccount: (_, sub) => claims.has(sub) && { accountId: sub, claims: () => ({ sub, ...claims.get(sub) }) },
    adapter,
    jwks: { keys: [newKey()] },
  }).callback()
}

let handler
const server = createServer((request, response) => {
  if (request.method === 'POST' && request.url === '/rotate') {
    handler = newHandler(issuer)
    response.end()
    return
  }
  handler(request, response)
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const issuer = `http://127.0.0.1:${server.address().port}`
handler = newHandler(issuer)
console.log(issuer)
