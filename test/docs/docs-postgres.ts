import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import { integer, pgTable } from "drizzle-orm/pg-core";
import { type Config, task } from "flotilla";
import type { Kysely } from "kysely";
import type pg from "pg";

export { connect, startPod, task } from "flotilla";
export { z } from "zod";
export declare const ca: string;
export declare function token(): Promise<string>;
export declare const use: NonNullable<Config["use"]>;
export declare const pool: pg.Pool;
export declare const client: pg.PoolClient;
export declare const db: NodePgDatabase;
export declare const kysely: Kysely<{ orders: { id: number } }>;
export const orders = pgTable("orders", { id: integer().primaryKey() });
export const shipments = pgTable("shipments", { order: integer().notNull() });
export const ship = task<{ order: number }>("ship", {});
