// What a release of the SDK cannot do, or the emulator does not answer as E2B
// does. Each entry names a check that must not hold, in the releases that it
// lists, and says why; a check that does hold fails the run, as does an entry
// that no check asks.

const both = ['2.45.0', 'newest']

export const differences = [
  {
    check: 'connect with a reboot ends the processes',
    releases: ['2.45.0'],
    reason: 'this release has no onResume option and restores them',
  },
  {
    check: 'a process goes on in a sandbox from a snapshot',
    releases: both,
    reason: "the emulator's snapshots carry files and no process",
  },
  {
    check: 'a process goes on in a fork',
    releases: both,
    reason: "the emulator's forks carry files and no process",
  },
  {
    check: 'an allowed address can be reached',
    releases: both,
    reason: "the emulator's sandboxes have a network without a way out",
  },
  {
    check: 'a signed URL leads to its sandbox',
    releases: both,
    reason: 'with E2B_SANDBOX_URL the SDK puts no sandbox into it',
  },
  ...['r', 'java', 'typescript'].map((language) => ({
    check: `${language} code runs`,
    releases: both,
    reason: 'the emulator has no kernel for it',
  })),
]
