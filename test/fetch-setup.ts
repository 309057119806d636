/**
 * Has `fetch` use each connection for one request. Servers of Node close one that is idle for five seconds, and
 * where the machine stands still for as long, the next request is sent on it before either side has seen that.
 */
type Agent = new (options: { keepAliveTimeoutThreshold: number }) => object;

const place = Symbol.for("undici.globalDispatcher.1");
/** A server that says how long it keeps a connection isn't believed by so much. */
const keepAliveTimeoutThreshold = 3_600_000;

// The dispatcher is there from the first call on.
await fetch("data:,");
const globals = globalThis as { [place]?: { constructor: unknown } };
const Dispatcher = globals[place]!.constructor as Agent;
globals[place] = new Dispatcher({ keepAliveTimeoutThreshold });
