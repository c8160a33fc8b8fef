// Metrics, snapshots, forks and the network.

import { request } from 'node:http'

import { pages, sandboxUrl, thrown, until } from './harness.mjs'

// A process that can be found again by its command.
const sleeper = 'sleep 54321'
const slept = async (sandbox) => (await sandbox.commands.run(`pgrep -f '[s]leep 54321' || true`)).stdout !== ''

export async function metrics(t) {
  const { Sandbox } = t.base
  const sandbox = await t.create()
  const points = await until('a point', () => sandbox.getMetrics(), (list) => list.length > 0)
  const point = points[0]
  const numbers = ['cpuUsedPct', 'cpuCount', 'memUsed', 'memTotal', 'memCache', 'diskUsed', 'diskTotal']
  t.check('a point has its time and numbers',
    point.timestamp instanceof Date && numbers.every((name) => typeof point[name] === 'number'), point)
  t.check('it uses no more than there is', point.memUsed <= point.memTotal && point.diskUsed <= point.diskTotal, point)
  const { startedAt } = await sandbox.getInfo()
  const day = 24 * 3_600_000
  const old = { start: new Date(+startedAt - 2 * day), end: new Date(+startedAt - day) }
  t.same('there are none before its start', await Sandbox.getMetrics(sandbox.sandboxId, old), [])
}

export async function snapshots(t, metadata) {
  const { Sandbox, SandboxError } = t.base
  const sandbox = await t.create({ metadata })
  await sandbox.files.write('/data/kept', 'as it was')
  await sandbox.commands.run(sleeper, { background: true, timeoutMs: 0 })
  const made = []
  try {
    const snapshot = await sandbox.createSnapshot()
    made.push(snapshot.snapshotId)
    t.check('a snapshot has an ID', snapshot.snapshotId, snapshot)
    const name = `kept-${sandbox.sandboxId}`
    const named = await Sandbox.createSnapshot(sandbox.sandboxId, { name })
    made.push(named.snapshotId)
    t.check('and a name where one is given', named.names.some((n) => n.includes(name)), named)
    await sandbox.files.write('/data/kept', 'changed')
    t.same('the sandbox runs on', await sandbox.isRunning(), true)

    const ids = async (opts) => (await pages(sandbox.listSnapshots(opts))).map((s) => s.snapshotId).sort()
    t.same('the list has both', await ids(), [...made].sort())
    t.same('in pages too', await ids({ limit: 1 }), [...made].sort())
    const all = (await pages(Sandbox.listSnapshots())).map((s) => s.snapshotId)
    t.check('the list of all has them', made.every((id) => all.includes(id)), all)

    const copy = t.own(await Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000, metadata }))
    t.same('a sandbox from a snapshot has its files', await copy.files.read('/data/kept'), 'as it was')
    t.check('it is another one', copy.sandboxId !== sandbox.sandboxId)
    t.check('a process goes on in a sandbox from a snapshot', await slept(copy))
    await t.throws('deleteSnapshot of one in use', () => Sandbox.deleteSnapshot(snapshot.snapshotId), SandboxError)
    t.same('the copy can be killed', await copy.kill(), true)
  } finally {
    for (const id of made) {
      t.same('deleteSnapshot deletes', await Sandbox.deleteSnapshot(id), true)
    }
  }
  t.same('deleteSnapshot of none', await Sandbox.deleteSnapshot(made[0]), false)
  t.same('the list is empty then', await pages(sandbox.listSnapshots()), [])
  const gone = await t.throws('create from a deleted one', () => Sandbox.create(made[0]), SandboxError)
  t.match('says that it is not found', String(gone), /404: .*not found/)
}

export async function forks(t) {
  const sandbox = await t.create()
  await sandbox.files.write('/data/kept', 'as it was')
  await sandbox.commands.run(sleeper, { background: true, timeoutMs: 0 })
  const copies = await sandbox.fork({ count: 2, timeoutMs: 60_000 })
  copies.filter((copy) => !(copy instanceof Error)).forEach((copy) => t.own(copy))
  t.same('fork gives as many as asked for', copies.map((copy) => copy instanceof Error), [false, false])
  t.same('each has an own ID', new Set([sandbox, ...copies].map((s) => s.sandboxId)).size, 3)
  await copies[0].files.write('/data/kept', 'by a copy')
  t.same('each has own files', [await sandbox.files.read('/data/kept'), await copies[1].files.read('/data/kept')],
    ['as it was', 'as it was'])
  t.check('a process goes on in a fork', await slept(copies[1]))
  const [other] = await t.base.Sandbox.fork(sandbox.sandboxId)
  t.own(other)
  t.same('the class forks too', await other.isRunning(), true)
}

// ask requests a path of a sandbox's port by host name, as a name server would lead there.
function ask(host, path) {
  return new Promise((resolve, reject) => {
    const sent = request(new URL(path, sandboxUrl), { headers: { host } }, async (answer) => {
      const parts = []
      for await (const part of answer) parts.push(part)
      resolve([answer.statusCode, Buffer.concat(parts).toString()])
    })
    sent.on('error', reject)
    sent.end()
  })
}

export async function network(t) {
  const { ALL_TRAFFIC, SandboxNotFoundError, Sandbox } = t.base
  const sandbox = await t.create({ network: { allowOut: ['192.0.2.1', 'example.com'], denyOut: [ALL_TRAFFIC] } })
  const shown = async () => {
    const { allowOut, denyOut } = (await sandbox.getInfo()).network ?? {}
    return { allowOut, denyOut }
  }
  t.same('info has the rules', await shown(), { allowOut: ['192.0.2.1', 'example.com'], denyOut: [ALL_TRAFFIC] })
  await sandbox.updateNetwork({ allowOut: ['192.0.2.2'], denyOut: [ALL_TRAFFIC] })
  t.same('updateNetwork replaces them', await shown(), { allowOut: ['192.0.2.2'], denyOut: [ALL_TRAFFIC] })
  // The second column of a default route is all zeros.
  const routes = (await sandbox.commands.run('cat /proc/net/route')).stdout
  t.check('an allowed address can be reached', /^\S+\s+00000000\s/m.test(routes), routes)
  const wrong = { denyOut: ['not an address'] }
  t.check('a wrong rule is an error', (await thrown(() => sandbox.updateNetwork(wrong))).error, 'it was taken')
  await t.throws('rules of a sandbox that is not there', () => Sandbox.updateNetwork('inone', {}), SandboxNotFoundError)

  const host = sandbox.getHost(8080)
  t.check('getHost names port and sandbox', host.startsWith(`8080-${sandbox.sandboxId}.`), host)
  await sandbox.files.write('/data/www/page', 'served')
  await sandbox.commands.run('python3 -m http.server 8080 -d /data/www', { background: true, timeoutMs: 0 })
  const answer = await until('the server', () => ask(host, '/page'), ([status]) => status === 200)
  t.same('a server answers at that host', answer, [200, 'served'])
  const [closed] = await ask(sandbox.getHost(8081), '/')
  t.same('a closed port is a 502', closed, 502)
}
