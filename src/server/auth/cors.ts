import type { MiddlewareHandler } from "hono";

// How long a browser needn't ask again.
const rememberedSeconds = 600;
const headersTaken = [
  "Authorization",
  "Content-Type",
  "If-Match",
  "Last-Event-ID",
  "Flotilla-Tenant",
  "Flotilla-User",
];

/**
 * Lets pages of the sites that are named call, with their token in a header. Cookies play no part, so no
 * page can use what somebody else's browser has.
 */
export function allowOrigins(origins: readonly string[]): MiddlewareHandler {
  return async (c, next) => {
    const origin = c.req.header("origin");
    if (origin === undefined || !origins.includes(origin)) return next();
    const asksFirst = c.req.method === "OPTIONS" && c.req.header("access-control-request-method");
    if (asksFirst) c.res = new Response(null, { status: 204 });
    else await next();
    c.header("Access-Control-Allow-Origin", origin);
    c.header("Vary", "Origin", { append: true });
    if (!asksFirst) return;
    c.header("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE");
    c.header("Access-Control-Allow-Headers", headersTaken.join(", "));
    c.header("Access-Control-Max-Age", String(rememberedSeconds));
  };
}
