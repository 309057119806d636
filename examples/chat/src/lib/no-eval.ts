// The AI SDK's schema library tries whether it may compile code. The page's policy forbids that, and the
// browser would report the attempt as an error; it does as well without.
Object.assign(globalThis, { __zod_globalConfig: { jitless: true } });
