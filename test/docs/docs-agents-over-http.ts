import type { Express } from "express";
import type { Hono } from "hono";

export declare const secret: string;
export declare const hono: Hono;
export declare const express: Express;
export declare const payments: {
  charge(charge: { amount: number; idempotencyKey: string }): Promise<void>;
};
export declare const amount: number;
export declare function respond(messages: unknown, about: unknown): Response;
