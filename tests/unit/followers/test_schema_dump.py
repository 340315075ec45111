"""A plain dump taken apart: what is made before the copy, what after it, and what is left out."""

from __future__ import annotations

from pipeline.followers.copying import schema_dump

DUMP = """--
-- PostgreSQL database dump
--

\\restrict abc

SET statement_timeout = 0;
SET transaction_timeout = 0;
SELECT pg_catalog.set_config('search_path', '', false);

SET default_tablespace = '';

--
-- Name: orders; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.orders (
    id integer NOT NULL
);


--
-- Name: orders orders_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (id);


--
-- Name: orders t; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER t AFTER INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION public.f();


--
-- Name: lines lines_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.lines
    ADD CONSTRAINT lines_fkey FOREIGN KEY (id) REFERENCES public.orders(id);


--
-- PostgreSQL database dump complete
--

\\unrestrict abc
"""


def test_tables_come_before_the_copy_and_keys_after_it() -> None:
    found = schema_dump.parse(DUMP)
    assert "CREATE TABLE public.orders" in found.before
    assert "orders_pkey" not in found.before
    [key] = found.after
    assert "orders_pkey" in key
    for left_out in ("TRIGGER", "FOREIGN KEY", "restrict"):
        assert left_out not in found.before + key


def test_settings_that_a_server_does_not_know_are_left_out() -> None:
    found = schema_dump.parse(DUMP)
    assert found.preamble(["statement_timeout"]) == "SET search_path = '';\nSET statement_timeout = 0;\n"
    assert "transaction_timeout" in found.preamble(["transaction_timeout"])


def test_an_empty_dump() -> None:
    found = schema_dump.parse("--\n-- PostgreSQL database dump\n--\n\nSET lock_timeout = 0;\n")
    assert (found.before, found.after) == ("", [])
