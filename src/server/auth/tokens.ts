import {
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  jwtVerify,
  type JWTVerifyGetKey,
} from "jose";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { usualVerbs, type Verb, verbs } from "../../protocol/verbs.ts";
import type { TokenConfig } from "../../runtime/server-config.ts";
import { type Caller, isName, nameRule } from "./caller.ts";

export type TokenVerifier = (token: string) => Promise<Caller>;

// Clocks of two machines differ by a little, and a token may be used in the second it is made.
const toleranceSeconds = 5;
const maxTokenChars = 16_384;
const maxSessions = 1_000;

/** Checks tokens of users. Which algorithm is right is for us to say, never for the token. */
export function createTokenVerifier(config: TokenConfig, clock: Clock): TokenVerifier {
  const { secret, issuer, audience } = config;
  const byDefault = secret === undefined ? ["RS256", "ES256", "EdDSA"] : ["HS256"];
  const algorithms = [...(config.algorithms ?? byDefault)];
  const key = keyOf(config);
  return async (token) => {
    if (token.length > maxTokenChars) throw refusal("the token is too long");
    const options = {
      algorithms,
      clockTolerance: toleranceSeconds,
      currentDate: new Date(clock.now()),
      requiredClaims: ["exp"],
      ...(issuer !== undefined && { issuer }),
      ...(audience !== undefined && { audience }),
    };
    try {
      const { payload } = await jwtVerify(token, key, options);
      return callerOf(payload, config.claims);
    } catch (error) {
      throw toAuthError(error);
    }
  };
}

function keyOf({ secret, jwks, jwksUrl }: TokenConfig): JWTVerifyGetKey {
  if (secret !== undefined) {
    const bytes = new TextEncoder().encode(secret);
    return () => bytes;
  }
  if (jwks) return createLocalJWKSet(jwks as JSONWebKeySet);
  return createRemoteJWKSet(new URL(jwksUrl!));
}

function callerOf(payload: JWTPayload, claims: TokenConfig["claims"] = {}): Caller {
  const { tenant: tenantClaim = "tenant", user: userClaim = "sub" } = claims;
  const { sessions: sessionsClaim = "sessions" } = claims;
  const sessions = payload[sessionsClaim];
  return {
    kind: "user",
    tenant: nameOf(tenantClaim, payload[tenantClaim] ?? "default"),
    user: nameOf(userClaim, payload[userClaim]),
    verbs: new Set(verbsOf(payload, claims.verbs)),
    ...(sessions !== undefined && { sessions: new Set(idsOf(sessionsClaim, sessions)) }),
    expiresAtMs: expiryMs(payload.exp!) + toleranceSeconds * 1_000,
  };
}

// The last second that a date can be. JSON also has numbers above all numbers, such as 1e400.
const lastSecond = 8.64e12;

function expiryMs(exp: number): number {
  if (exp <= lastSecond) return exp * 1_000;
  throw refusal("the token's claim exp must be the second at which it expires");
}

function verbsOf(payload: JWTPayload, claim: string = "verbs"): readonly Verb[] {
  const claimed = payload[claim];
  if (claimed !== undefined) return knownVerbs(claimed);
  // A scope is often about other things alone, and then says nothing of us.
  const scoped = knownVerbs(payload["scope"]);
  return scoped.length > 0 ? scoped : usualVerbs;
}

/** Words that aren't verbs mean something to others. No user's token makes an administrator. */
function knownVerbs(claimed: unknown): Verb[] {
  const words: unknown[] =
    typeof claimed === "string" ? claimed.split(" ") : Array.isArray(claimed) ? claimed : [];
  return verbs.filter((verb) => verb !== "admin" && words.includes(verb));
}

function nameOf(claim: string, value: unknown): string {
  if (isName(value)) return value;
  throw refusal(`the token's claim ${claim} must be ${nameRule}`);
}

function idsOf(claim: string, value: unknown): string[] {
  if (Array.isArray(value) && value.length <= maxSessions)
    return value.filter((each) => typeof each === "string");
  throw refusal(`the token's claim ${claim} must be a list of at most ${maxSessions} ids`);
}

/** No keys came, or something else in their place: an error page, or one that says to come back. */
const keysMissing = new Set([
  errors.JOSEError.code,
  errors.JWKSInvalid.code,
  errors.JWKSTimeout.code,
]);

function toAuthError(error: unknown): unknown {
  if (error instanceof FlotillaError) return error;
  if (error instanceof errors.JWTExpired) return refusal("the token has expired: get a new one");
  if (error instanceof errors.JWTClaimValidationFailed && error.reason === "missing")
    return refusal(
      error.claim === "exp"
        ? "the token has no end: give it a claim exp, the second at which it expires"
        : `the token has no claim ${error.claim}, which must be there`,
    );
  if (error instanceof errors.JWTClaimValidationFailed)
    return refusal(`the token's claim ${error.claim} isn't what it must be here`);
  // Whoever calls can't help that, and shouldn't throw its token away.
  if (!(error instanceof errors.JOSEError) || keysMissing.has(error.code))
    return new FlotillaError("timeout", "the keys that tokens are checked with can't be had now", {
      cause: error,
    });
  return refusal("the token isn't one that is known here");
}

function refusal(message: string): FlotillaError {
  return new FlotillaError("unauthorized", message);
}
