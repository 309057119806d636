/** The network as this process reaches it, looked up anew each time, as tools replace it to watch it. */
export const network: typeof fetch = (input, init) => globalThis.fetch(input, init);
