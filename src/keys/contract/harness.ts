import { afterAll, afterEach, beforeAll, beforeEach } from "vitest";
import { type MovableClock, movableClock } from "../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import { emptyTables } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { type Credentials, createCredentials } from "../credentials.ts";
import { createKeys, type Keys } from "../keys.ts";
import { createRevocations, type TokenRevocations } from "../revocations.ts";
import { createSignIns, type SignIns } from "../sign-ins.ts";

const waitLimitMs = 90_000;
const tables = ["api_key", "sign_in", "token_revocation", "credential_version", "audit"] as const;

/** A store without keys before each test, and servers on it whose time is in hand. */
export function openKeys(kind: StoreKind) {
  let store: OpenStore;
  /** The store's, with what it is asked counted for as long as it is. */
  let database: Database;
  let clock: MovableClock;
  let keys: Keys;
  let signIns: SignIns;
  let tokens: TokenRevocations;
  let opened: Credentials[] = [];
  /** Calls that the store hasn't answered yet. */
  let underWay = 0;
  beforeAll(async () => {
    store = await kind.open();
    await migrate(store.database);
    const { read, write } = store.database;
    database = {
      ...store.database,
      read: (...asked) => noted(read(...asked)),
      write: (...asked) => noted(write(...asked)),
    };
  });
  afterAll(async () => {
    await store.database.close();
    await store.remove();
  });
  beforeEach(async () => {
    await emptyTables(store, tables);
    // A store whose clock can't be moved has the machine's, which expiry is compared with.
    clock = store.clock ?? movableClock(Date.now());
    keys = keysOn(store.database);
    signIns = signInsOn(store.database);
    tokens = createRevocations(partsOf(store.database));
  });
  afterEach(async () => {
    for (const each of opened) await each.close();
    opened = [];
  });

  const partsOf = (database: Database) => ({
    database,
    clock,
    random: systemRandom,
    ids: uuidv7(clock, systemRandom),
  });
  const noted = async <Answer>(call: Promise<Answer>): Promise<Answer> => {
    underWay++;
    try {
      return await call;
    } finally {
      underWay--;
    }
  };
  const keysOn = (database: Database) => createKeys(partsOf(database));
  const signInsOn = (database: Database) => createSignIns(partsOf(database));

  return {
    get store() {
      return store;
    },
    get database() {
      return database;
    },
    get clock() {
      return clock;
    },
    get keys() {
      return keys;
    },
    get signIns() {
      return signIns;
    },
    get tokens() {
      return tokens;
    },
    keysOn,
    signInsOn,

    /** What a server on the store knows. It is closed after the test. */
    async serve(
      of: Database = database,
      more: { hasStreamLogs?: () => boolean } = {},
    ): Promise<Credentials> {
      const credentials = createCredentials({ database: of, clock, ...more });
      opened.push(credentials);
      await credentials.ready();
      return credentials;
    },

    /** Lets time pass in small steps, until something has happened. Gives how much of it has passed. */
    async until(what: string, condition: () => unknown): Promise<number> {
      const deadlineMs = performance.now() + waitLimitMs;
      const startedMs = clock.monotonic();
      while (!(await condition())) {
        if (performance.now() > deadlineMs) throw new Error(`${what} didn't happen`);
        // Stores on threads answer in their own time, and servers give up a read that takes seconds of theirs.
        if (store.clock || underWay === 0) await clock.advance(10);
        if (!store.clock) await new Promise((resolve) => setTimeout(resolve, 2));
      }
      return clock.monotonic() - startedMs;
    },
  };
}

/** The same store where no commit of another process is noticed, so that only polling finds it. */
export function unnotified(database: Database): Database {
  return { ...database, subscribe: () => () => {} };
}

/** The same store, with its reads and writes in hand. */
export function controlled(database: Database) {
  const control = {
    reads: 0,
    writes: 0,
    /** Called before each call: it may throw, or wait. */
    before: async () => {},
  };
  const controlledDatabase: Database = {
    ...database,
    async read(statement, options) {
      control.reads++;
      await control.before();
      return database.read(statement, options);
    },
    async write(statements, options) {
      control.writes++;
      await control.before();
      return database.write(statements, options);
    },
  };
  return { control, database: controlledDatabase };
}
