import ipaddr from "ipaddr.js";
import { FlotillaError } from "../../base/errors.ts";

// Allowed with `allowPrivate`. Cloud metadata services and unassigned addresses stay forbidden.
const privateRanges = new Set(["loopback", "private", "uniqueLocal", "carrierGradeNat"]);

// Metadata services within private ranges, and Azure's, which looks public but is local to each machine.
const metadataServices = new Set([
  "100.100.100.200",
  "168.63.129.16",
  "fd00:ec2::254",
  "fd20:ce::254",
]);

/** Whether an agent may be at this address. Everything that is not clearly public counts as private. */
export function isAllowedAddress(address: string, allowPrivate: boolean): boolean {
  if (!ipaddr.isValid(address)) return false;
  // An IPv4-mapped address counts as the address that it maps.
  const found = ipaddr.process(address);
  if (metadataServices.has(found.toString())) return false;
  const range = found.range();
  if (range === "unicast") return !isCompatible(found);
  return allowPrivate && privateRanges.has(range);
}

/** Throws if an agent cannot have this URL, as far as is known before its name is resolved. */
export function checkAgentUrl(what: string, value: unknown, allowPrivate: boolean): string {
  const url = typeof value === "string" && URL.canParse(value) ? new URL(value) : undefined;
  const wrong = url ? wrongWith(url, allowPrivate) : "isn't a URL";
  if (wrong) {
    const excerpt = String(value).slice(0, 200);
    throw new FlotillaError("invalid_option", `${what}: ${excerpt} ${wrong}`);
  }
  return url!.href;
}

export function whyRefused(allowPrivate: boolean): string {
  return allowPrivate
    ? "is at an address that is neither public nor in a private network, where no agent can be"
    : "is at an address that isn't public; private networks need `allowPrivate: true`";
}

/**
 * True for IPv4-compatible addresses such as `::127.0.0.1`, written `::7f00:1` in URLs: obsolete, never
 * public.
 */
function isCompatible(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  return "parts" in address && address.parts.slice(0, 6).every((part) => part === 0);
}

function wrongWith(url: URL, allowPrivate: boolean): string | undefined {
  if (url.protocol !== "https:" && !(allowPrivate && url.protocol === "http:")) {
    return allowPrivate
      ? "must begin with https:// or http://"
      : "must begin with https://; http:// is for private networks, with `allowPrivate: true`";
  }
  if (url.username !== "" || url.password !== "") {
    return "must not contain a user or a password: use `headers`";
  }
  // Literal addresses are checked here, because they never pass the DNS lookup. The URL class has already
  // normalised odd forms such as 0x7f.1 and 2130706433.
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const isAllowed = ipaddr.isValid(host)
    ? isAllowedAddress(host, allowPrivate)
    : allowPrivate || !isLocalName(host);
  return isAllowed ? undefined : whyRefused(allowPrivate);
}

function isLocalName(host: string): boolean {
  return /(^|\.)(localhost|local|internal)\.?$/i.test(host);
}
