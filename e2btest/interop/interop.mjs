// Drives an emulator with the official JavaScript SDK. Takes E2B_API_URL,
// E2B_SANDBOX_URL and E2B_API_KEY from the environment, prints a line for each
// check and exits with status 0 only if all of them held.
//
// With E2B_INTEROP_MARK it leaves two sandboxes behind on purpose, one running
// and one paused, whose processes carry that word in their command lines:
// run.sh looks for them before and after it stops the emulator.

import { subscribe } from 'node:diagnostics_channel'
import { setTimeout as sleep } from 'node:timers/promises'

const limitMs = 180_000
const tickMs = 50 // the counter's own pause between two numbers
const pausedMs = 2_000

const apiUrl = need('E2B_API_URL')
const apiKey = need('E2B_API_KEY')
need('E2B_SANDBOX_URL')

// The requests of the SDK under test, as the HTTP library below it reports them.
let requests = []
subscribe('undici:request:create', ({ request }) => requests.push(`${request.method} ${request.path}`))

let failed = 0
let passed = 0

function need(name) {
  const value = process.env[name]
  if (!value) {
    console.error(`${name} is not set: start cmd/e2b-local and export the lines that it prints`)
    process.exit(2)
  }
  return value
}

function check(what, held, seen) {
  if (held) {
    passed++
    console.log(`ok    ${what}`)
  } else {
    failed++
    console.log(`FAIL  ${what}: ${typeof seen === 'string' ? seen : JSON.stringify(seen)}`)
  }
}

function same(what, got, want) {
  check(what, Object.is(got, want), `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
}

async function thrown(call) {
  try {
    return { value: await call() }
  } catch (error) {
    return { error }
  }
}

// until polls read until good accepts its value; a read that fails counts as
// not there yet.
async function until(what, read, good, ms = 10_000) {
  const end = Date.now() + ms
  for (;;) {
    const { value, error } = await thrown(read)
    if (!error && good(value)) return value
    if (Date.now() > end) throw new Error(`${what}: not seen in ${ms} ms, last ${error ?? JSON.stringify(value)}`)
    await sleep(20)
  }
}

async function pages(paginator) {
  const all = []
  while (paginator.hasNext) all.push(...(await paginator.nextItems()))
  return all
}

async function lifecycle(label, sdk, createRoute, connectRoute) {
  const { Sandbox, NotFoundError, CommandExitError } = sdk
  requests = []
  const metadata = { interop: `${label}-${Date.now()}-${Math.random().toString(36).slice(2)}` }
  const say = (what) => `${label}: ${what}`

  let sandbox = await Sandbox.create('base', { timeoutMs: 120_000, metadata })
  const id = sandbox.sandboxId
  try {
    check(say(`create uses ${createRoute}`), requests.includes(`POST ${createRoute}`), requests)
    check(say('create gives an ID'), /^[a-z0-9]+$/.test(id), id)
    same(say('a new sandbox is running'), await sandbox.isRunning(), true)
    same(say('info says running'), (await Sandbox.getInfo(id)).state, 'running')

    const hello = await sandbox.commands.run('echo "sum $((6 * 7))"; echo careful >&2')
    same(say('a command: stdout'), hello.stdout, 'sum 42\n')
    same(say('a command: stderr'), hello.stderr, 'careful\n')
    same(say('a command: exit code'), hello.exitCode, 0)
    const bad = await thrown(() => sandbox.commands.run('exit 3'))
    check(
      say('a failing command throws with its exit code'),
      bad.error instanceof CommandExitError && bad.error.exitCode === 3,
      String(bad.error ?? JSON.stringify(bad.value)),
    )

    const text = 'naïve café ☕, line one\nline two\n'
    await sandbox.files.write('/data/x.txt', text)
    same(say('/data/x.txt reads back as written'), await sandbox.files.read('/data/x.txt'), text)
    same(say('a command sees the same file'), (await sandbox.commands.run('cat /data/x.txt')).stdout, text)

    // The number is moved into place, so that no read sees half of it.
    const counter = await sandbox.commands.run(
      `i=0; while :; do i=$((i+1)); echo $i >/data/n.new; mv /data/n.new /data/n; sleep ${tickMs / 1000}; done`,
      { background: true, timeoutMs: 0 },
    )
    const count = async () => Number(await sandbox.files.read('/data/n'))
    await until('counting', count, (n) => n >= 3)
    // Its stream would break at the pause; the process stays.
    await counter.disconnect()

    const before = await count()
    let awake = Date.now() // start of the first stretch in which it may count
    same(say('pause reports that it paused'), await sandbox.pause(), true)
    awake = Date.now() - awake
    same(say('a second pause reports that it was paused'), await sandbox.pause(), false)
    const again = await fetch(`${apiUrl}/sandboxes/${id}/pause`, { method: 'POST', headers: { 'X-API-Key': apiKey } })
    const answer = await again.json()
    same(say('a second pause is a 409'), again.status, 409)
    check(say('the 409 says already paused'), answer.code === 409 && /already paused/.test(answer.message), answer)
    same(say('a paused sandbox is not running'), await sandbox.isRunning(), false)
    same(say('info says paused'), (await Sandbox.getInfo(id)).state, 'paused')
    const asleep = await pages(Sandbox.list({ query: { metadata, state: ['paused'] } }))
    same(say('the list of paused sandboxes has it'), asleep.map((s) => s.sandboxId).join(), id)

    await sleep(pausedMs)

    const resumed = Date.now()
    sandbox = await Sandbox.connect(id, { timeoutMs: 120_000 })
    const after = await count()
    awake += Date.now() - resumed
    check(say(`connect uses ${connectRoute}`), requests.includes(`POST ${connectRoute.replace('{id}', id)}`), requests)
    same(say('connect gives the same sandbox'), sandbox.sandboxId, id)
    same(say('the file is there after the pause'), await sandbox.files.read('/data/x.txt'), text)
    // One tick may straddle each end of the two stretches awake.
    const most = before + Math.ceil(awake / tickMs) + 2
    check(
      say(`the count stood still for ${pausedMs} ms`),
      before <= after && after <= most,
      `${before} before, ${after} after, at most ${most} in ${awake} ms awake`,
    )
    const listed = await sandbox.commands.list()
    check(say('the process is there after the pause'), listed.some((p) => p.pid === counter.pid), listed)
    await until('counting again', count, (n) => n > after)
    check(say('the process counts on'), true)

    const mine = await pages(Sandbox.list({ query: { metadata } }))
    same(say('the list by metadata has it alone'), mine.map((s) => s.sandboxId).join(), id)
    same(say('its metadata reads back'), mine[0]?.metadata?.interop, metadata.interop)
    const other = await pages(Sandbox.list({ query: { metadata: { interop: 'of nobody' } } }))
    same(say('the list by other metadata is empty'), other.length, 0)

    same(say('kill reports that it killed'), await sandbox.kill(), true)
    same(say('a second kill reports that it was gone'), await Sandbox.kill(id), false)
    same(say('a killed sandbox is not running'), await sandbox.isRunning(), false)
    same(say('a killed sandbox is in no list'), (await pages(Sandbox.list({ query: { metadata } }))).length, 0)
    const gone = await thrown(() => Sandbox.connect(id))
    check(
      say('connect to a killed sandbox is not found'),
      gone.error instanceof NotFoundError,
      String(gone.error ?? 'no error'),
    )
  } catch (error) {
    check(say('no error'), false, error?.stack ?? String(error))
    await thrown(() => Sandbox.kill(id))
  }
}

// leave starts what run.sh expects the end of the emulator to end: a process
// that left its session, and the same frozen in a paused sandbox.
async function leave({ Sandbox }, mark) {
  for (const pause of [false, true]) {
    const sandbox = await Sandbox.create('base', { timeoutMs: 600_000 })
    await sandbox.commands.run(`setsid sh -c 'echo $0 >/data/left; while :; do sleep 1; done' ${mark} >/dev/null 2>&1 &`)
    await until('a process to leave behind', () => sandbox.files.read('/data/left'), (s) => s === `${mark}\n`)
    if (pause) await sandbox.pause()
  }
}

const limit = setTimeout(() => {
  console.log(`FAIL  not done after ${limitMs / 1000} s`)
  process.exit(1)
}, limitMs)

try {
  const old = await import('e2b-v1')
  const newest = await import('e2b-newest')
  await lifecycle('e2b 2.45.0', old, '/sandboxes', '/sandboxes/{id}/connect')
  await lifecycle('e2b newest', newest, '/v2/sandboxes', '/v2/sandboxes/{id}/connect')
  if (process.env.E2B_INTEROP_MARK) await leave(newest, process.env.E2B_INTEROP_MARK)
} catch (error) {
  check('no error', false, error?.stack ?? String(error))
}
clearTimeout(limit)
console.log(`${passed} checks held, ${failed} failed`)
process.exit(failed === 0 && passed > 0 ? 0 : 1)
