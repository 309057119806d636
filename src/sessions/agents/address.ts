import ipaddr from "ipaddr.js";
import { FlotillaError } from "../../base/errors.ts";

// With private addresses allowed, still not those of cloud metadata services and of nobody.
const privateRanges = new Set(["loopback", "private", "uniqueLocal", "carrierGradeNat"]);

// Those of them that are in private ranges, and Azure's, which looks public and is each machine's own.
const metadataServices = new Set([
  "100.100.100.200",
  "168.63.129.16",
  "fd00:ec2::254",
  "fd20:ce::254",
]);

/** Whether an agent may be at this address. Everything that isn't plainly public counts as private. */
export function isAllowedAddress(address: string, allowPrivate: boolean): boolean {
  if (!ipaddr.isValid(address)) return false;
  // A mapped address is the one that it maps.
  const found = ipaddr.process(address);
  if (metadataServices.has(found.toString())) return false;
  const range = found.range();
  if (range === "unicast") return !isCompatible(found);
  return allowPrivate && privateRanges.has(range);
}

/** Whether it is `::127.0.0.1` or the like, which URLs write as `::7f00:1`: long gone, and never public. */
function isCompatible(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  return "parts" in address && address.parts.slice(0, 6).every((part) => part === 0);
}

/** Refuses a URL that agents can't have, as far as can be told before its name is looked up. */
export function checkAgentUrl(what: string, value: unknown, allowPrivate: boolean): string {
  const url = typeof value === "string" && URL.canParse(value) ? new URL(value) : undefined;
  const wrong = url ? wrongWith(url, allowPrivate) : "isn't a URL";
  if (wrong) {
    const excerpt = String(value).slice(0, 200);
    throw new FlotillaError("invalid_option", `${what}: ${excerpt} ${wrong}`);
  }
  return url!.href;
}

function wrongWith(url: URL, allowPrivate: boolean): string | undefined {
  if (url.protocol !== "https:" && !(allowPrivate && url.protocol === "http:")) {
    return allowPrivate
      ? "must begin with https:// or http://"
      : "must begin with https://; http:// is for private networks, with `allowPrivate: true`";
  }
  if (url.username !== "" || url.password !== "") {
    return "must not hold a user or a password; use `headers`";
  }
  // Literals never come by the look-up of names, so this is where they are checked. URLs write all
  // odd forms of an address, such as 0x7f.1 and 2130706433, in the usual one.
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const isAllowed = ipaddr.isValid(host)
    ? isAllowedAddress(host, allowPrivate)
    : allowPrivate || !isLocalName(host);
  return isAllowed ? undefined : whyRefused(allowPrivate);
}

export function whyRefused(allowPrivate: boolean): string {
  return allowPrivate
    ? "is at an address that is neither public nor of a private network, where no agent can be"
    : "is at an address that isn't public; private networks need `allowPrivate: true`";
}

function isLocalName(host: string): boolean {
  return /(^|\.)(localhost|local|internal)\.?$/i.test(host);
}
