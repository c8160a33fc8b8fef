// What all topics share: checks that say what they expected and saw, the table
// of known differences, and helpers around the SDK.

import { isDeepStrictEqual } from 'node:util'
import { subscribe } from 'node:diagnostics_channel'
import { setTimeout as sleep } from 'node:timers/promises'

import { differences } from './differences.mjs'

export { sleep }

export const apiUrl = need('E2B_API_URL')
export const sandboxUrl = need('E2B_SANDBOX_URL')
export const apiKey = need('E2B_API_KEY')

// The requests of the SDK under test, as the HTTP library below it reports them.
export const requests = []
subscribe('undici:request:create', ({ request }) => requests.push(`${request.method} ${request.path}`))

export const total = { held: 0, known: 0, failed: 0 }

function need(name) {
  const value = process.env[name]
  if (!value) {
    console.error(`${name} is not set: start cmd/e2b-local and export the lines that it prints`)
    process.exit(2)
  }
  return value
}

export function fail(what, seen) {
  total.failed++
  console.log(`FAIL  ${what}: ${typeof seen === 'string' ? seen : JSON.stringify(seen)}`)
}

// SDK is one version of the SDK under test: its packages, e2b as base and
// @e2b/code-interpreter as code, and its checks.
export class SDK {
  constructor(label, release, base, code) {
    Object.assign(this, { label, release, base, code, sandboxes: [] })
    this.known = new Map(differences.filter((d) => d.releases.includes(release)).map((d) => [d.check, d]))
    this.seen = new Set()
  }

  // check counts one check. One in the table of differences must not hold.
  check(what, held, seen = 'it does not hold') {
    const difference = this.known.get(what)
    this.seen.add(what)
    what = `${this.label}: ${what}`
    if (difference && held) {
      fail(what, 'it holds, so its entry in differences.mjs is no longer needed')
    } else if (difference) {
      total.known++
      console.log(`known ${what}: not so, ${difference.reason}`)
    } else if (held) {
      total.held++
      console.log(`ok    ${what}`)
    } else {
      fail(what, seen)
    }
  }

  same(what, got, want) {
    this.check(what, isDeepStrictEqual(got, want), `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
  }

  match(what, got, want) {
    this.check(what, want.test(got), `got ${JSON.stringify(got)}, want a match of ${want}`)
  }

  // throws checks that call throws a kind, and gives the error for more checks.
  async throws(what, call, kind) {
    const { error, value } = await thrown(call)
    this.check(what, error instanceof kind, `got ${error ?? JSON.stringify(value)}, want ${kind.name}`)
    return error
  }

  // own has a sandbox killed at the end of the topic.
  own(sandbox) {
    this.sandboxes.push(sandbox)
    return sandbox
  }

  async create(opts = {}) {
    return this.own(await this.base.Sandbox.create('base', { timeoutMs: 120_000, ...opts }))
  }

  async topic(name, run) {
    const start = Date.now()
    const metadata = { interop: `${this.release}-${name}-${start}-${Math.random().toString(36).slice(2)}` }
    try {
      await run(this, metadata)
    } catch (error) {
      fail(`${this.label}: ${name}`, error?.stack ?? String(error))
    }
    await Promise.all(this.sandboxes.splice(0).map((sandbox) => thrown(() => sandbox.kill())))
    console.log(`--    ${this.label}: ${name} took ${Date.now() - start} ms`)
  }

  // done fails for what the table has and no check asked.
  done() {
    for (const what of this.known.keys()) {
      if (!this.seen.has(what)) fail(`${this.label}: ${what}`, 'it is in differences.mjs and was not checked')
    }
  }
}

export async function thrown(call) {
  try {
    return { value: await call() }
  } catch (error) {
    return { error }
  }
}

// until polls read until good accepts its value; a read that fails counts as
// not there yet.
export async function until(what, read, good, ms = 10_000) {
  const end = Date.now() + ms
  for (;;) {
    const { value, error } = await thrown(read)
    if (!error && good(value)) return value
    if (Date.now() > end) throw new Error(`${what}: not seen in ${ms} ms, last ${error ?? JSON.stringify(value)}`)
    await sleep(20)
  }
}

export async function pages(paginator) {
  const all = []
  while (paginator.hasNext) all.push(...(await paginator.nextItems()))
  return all
}
