#![allow(unused)] fn main(){}
